//! Surveys of all neighbours' chunks, for a far side asking for the site's losses: nobody waits for the answer.

use std::collections::BTreeMap;

use oncewire_codec::Now;
use oncewire_codec::wire::{GroupFrame, MAX_PEEK, Sought};

use super::{Asked, MemberId, Neighbourhood, Output};

/// The unanswered questions.
#[derive(Debug, Default)]
pub(super) struct Surveys {
    by_id: BTreeMap<u64, Survey>,
    next: u64,
}

#[derive(Debug)]
struct Survey {
    /// The caller's.
    ticket: u64,
    /// What somebody has.
    held: Vec<bool>,
    /// How many have not answered.
    open: usize,
}

/// The most surveys at a time; a peer has one question open.
pub const MAX_SURVEYS: usize = 64;

impl Neighbourhood {
    /// Finds out which chunks neighbours have, for [`Output::Surveyed`]. All are taken to be there while a neighbour cannot
    /// be asked, since it may have them, if there are more than [`MAX_PEEK`], and if [`MAX_SURVEYS`] go on.
    pub fn survey(&mut self, ticket: u64, chunks: &[Sought], now: Now) {
        let able: Vec<MemberId> = self.members.keys().copied().filter(|id| self.can_ask(*id, now)).collect();
        let is_too_much = chunks.len() > MAX_PEEK || self.surveys.by_id.len() >= MAX_SURVEYS;
        let held = is_too_much || able.len() < self.members.len();
        if held || able.is_empty() {
            return self.outputs.push_back(Output::Surveyed { ticket, held: vec![held; chunks.len()] });
        }
        let id = self.surveys.next;
        self.surveys.next += 1;
        let survey = Survey { ticket, held: vec![false; chunks.len()], open: able.len() };
        self.surveys.by_id.insert(id, survey);
        for member in able {
            let request = self.wait_for(member, Asked::Survey(id), now);
            self.send(member, GroupFrame::Peek { request, chunks: chunks.to_vec() });
        }
    }

    /// Takes a neighbour's holdings; returns false if they answer something else.
    pub(super) fn handle_surveyed(&mut self, id: u64, held: &[bool]) -> bool {
        let Some(survey) = self.surveys.by_id.get_mut(&id) else { return true };
        let is_answer = survey.held.len() == held.len();
        if is_answer {
            survey.held.iter_mut().zip(held).for_each(|(any, held)| *any |= held);
        }
        self.leave_survey(id, is_answer);
        is_answer
    }

    /// One neighbour fewer is waited for; one that `says` nothing may have everything.
    pub(super) fn leave_survey(&mut self, id: u64, says: bool) {
        let Some(survey) = self.surveys.by_id.get_mut(&id) else { return };
        if !says {
            survey.held.fill(true);
        }
        survey.open = survey.open.saturating_sub(1);
        if survey.open == 0
            && let Some(Survey { ticket, held, .. }) = self.surveys.by_id.remove(&id)
        {
            self.outputs.push_back(Output::Surveyed { ticket, held });
        }
    }
}
