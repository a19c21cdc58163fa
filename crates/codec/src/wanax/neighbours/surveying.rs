//! Which chunks any neighbour has, for a far side that asks what this site has lost: nobody waits for the answer.

use std::collections::BTreeMap;

use super::{Asked, MemberId, Neighbourhood, Output};
use crate::Now;
use crate::wire::{GroupFrame, MAX_PEEK, Sought};

/// The questions that are not answered.
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

impl Neighbourhood {
    /// Finds out which chunks neighbours have, for [`Output::Surveyed`]; more than [`MAX_PEEK`] are taken to be there. One
    /// that rests is not asked, since nothing is read from it either.
    pub fn survey(&mut self, ticket: u64, chunks: &[Sought], now: Now) {
        let able: Vec<MemberId> = self.members.keys().copied().filter(|id| self.can_ask(*id, now)).collect();
        let is_long = chunks.len() > MAX_PEEK;
        if able.is_empty() || is_long {
            return self.outputs.push_back(Output::Surveyed { ticket, held: vec![is_long; chunks.len()] });
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

    /// A neighbour said what it has; returns false if that answers something else.
    pub(super) fn handle_surveyed(&mut self, id: u64, held: &[bool]) -> bool {
        let Some(survey) = self.surveys.by_id.get_mut(&id) else { return true };
        let is_answer = survey.held.len() == held.len();
        if is_answer {
            survey.held.iter_mut().zip(held).for_each(|(any, held)| *any |= held);
        }
        self.leave_survey(id, is_answer);
        is_answer
    }

    /// One neighbour fewer is waited for; one that is there and `says` nothing may have everything.
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
