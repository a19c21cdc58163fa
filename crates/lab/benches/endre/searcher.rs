//! The search and memory of a sending half, by themselves.

use oncewire_codec::endre::matcher::{Copy, MatchParams, MaxMatch, Search, is_held, lasting, next_hint};
use oncewire_codec::log::{Log, LogOffset};
use oncewire_codec::wire::MAX_BLOCK;
use oncewire_lab::corpus::Corpus as Noise;
use oncewire_lab::cpu::Stopwatch;

/// A full log, its table, and a flow's position.
pub(crate) struct Searcher {
    log: Log,
    max: MaxMatch,
    head: LogOffset,
    /// How far back blocks refer.
    reach: u64,
    noise: Noise,
    hint: Option<LogOffset>,
    copies: Vec<Copy>,
}

impl Searcher {
    /// Starts with a log full of noise; `also` is given each block of it and its place.
    pub(crate) fn new(
        log_memory: u64,
        params: MatchParams,
        reach: u64,
        also: impl FnMut(LogOffset, &[u8]),
    ) -> Self {
        let mut searcher = Self {
            log: Log::new(log_memory as usize),
            max: MaxMatch::new(log_memory, params),
            head: LogOffset::ZERO,
            reach,
            noise: Noise::new(0),
            hint: None,
            copies: Vec::new(),
        };
        searcher.fill(also);
        searcher
    }

    /// Pushes everything known out of the log, and begins another flow.
    pub(crate) fn fill(&mut self, mut also: impl FnMut(LogOffset, &[u8])) {
        for _ in 0..self.log.capacity() / MAX_BLOCK as u64 {
            let block = self.noise.random(MAX_BLOCK);
            self.find(&block, &mut Stopwatch::default());
            if let Some(at) = self.remember(&block, &mut Stopwatch::default(), &mut Stopwatch::default()) {
                also(at, &block);
            }
        }
        self.hint = None;
    }

    /// Searches the flow's next block; `watch` counts the time.
    pub(crate) fn find(&mut self, block: &[u8], watch: &mut Stopwatch) {
        let search = self.search(block);
        watch.time(|| self.max.find(&self.log, &search, &mut self.copies));
    }

    /// The copies found by the last search.
    pub(crate) fn copies(&self) -> &[Copy] {
        &self.copies
    }

    /// The markers looked up by the last search, and their fingerprints.
    pub(crate) fn looked_up(&self) -> impl Iterator<Item = (u32, u64)> {
        self.max.looked_up()
    }

    /// Remembers the last searched block, and returns its place, unless the log holds it well enough.
    pub(crate) fn remember(
        &mut self,
        block: &[u8],
        log: &mut Stopwatch,
        table: &mut Stopwatch,
    ) -> Option<LogOffset> {
        let search = self.search(block);
        self.hint = next_hint(&self.copies, block.len());
        if is_held(&self.copies, block.len(), search.lasting) {
            return None;
        }
        log.time(|| self.log.write(search.at, block));
        table.time(|| self.max.remember(&search, &self.copies));
        self.head = search.at.plus(block.len() as u64);
        self.hint.get_or_insert(self.head);
        Some(search.at)
    }

    fn search<'a>(&self, block: &'a [u8]) -> Search<'a> {
        let (at, reach) = (self.head, self.reach);
        Search { block, at, floor: at.minus(reach), lasting: lasting(at, reach), hint: self.hint }
    }
}
