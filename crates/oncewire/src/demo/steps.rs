//! The transfers of the demonstration.

use std::fmt;

use anyhow::Context;
use indicatif::ProgressBar;

use super::corpus::{Editions, File, sizes};
use super::fetch::fetch;
use super::origin::{Edition, resource};
use super::report::Row;
use super::stage::{Route, Stage};

/// One row of the table: content and time of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The gateways have never seen the files.
    First,
    /// The same files.
    Again,
    /// The files with small edits.
    Edit,
    /// The files once more, after the near gateway was restarted.
    Restart,
    /// An archive of the files, with bytes new to the link.
    Packed,
    /// The first of the files, once more, over HTTPS.
    Https,
}

impl Step {
    /// The main ones, in order; the last one follows a restart of the near gateway.
    pub(crate) const MAIN: [Self; 4] = [Self::First, Self::Again, Self::Edit, Self::Restart];
    /// Those for compressed or encrypted content; each of them may fail alone.
    pub(crate) const OPAQUE: [Self; 2] = [Self::Packed, Self::Https];
}

/// The transfers of one step.
pub(crate) struct Show<'a> {
    pub(crate) stage: &'a Stage,
    pub(crate) files: &'a Editions,
    pub(crate) progress: &'a ProgressBar,
}

/// The cost of one file by one route.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    seconds: f64,
    wire: u64,
}

impl Show<'_> {
    /// Moves all files of a step, directly and then through the gateways.
    ///
    /// # Errors
    ///
    /// The first failed or different transfer.
    pub(crate) async fn step(&self, step: Step) -> anyhow::Result<Vec<Row>> {
        let direct = self.move_all(step, Route::Direct).await?;
        let oncewire = self.move_all(step, Route::Oncewire).await?;
        let row = |((file, direct), oncewire): ((&File, Cost), Cost)| Row {
            step,
            path: file.path.clone(),
            delivered: file.bytes.len() as u64,
            wire_direct: direct.wire,
            wire: oncewire.wire,
            seconds_direct: direct.seconds,
            seconds: oncewire.seconds,
        };
        Ok(self.files_of(step).iter().zip(direct).zip(oncewire).map(row).collect())
    }

    /// Returns how long the first step takes by a route.
    ///
    /// # Errors
    ///
    /// The first failed or different transfer.
    pub(crate) async fn seconds_by(&self, route: Route) -> anyhow::Result<f64> {
        let costs = self.move_all(Step::First, route).await?;
        Ok(costs.iter().map(|cost| cost.seconds).sum())
    }

    async fn move_all(&self, step: Step, route: Route) -> anyhow::Result<Vec<Cost>> {
        let mut costs = Vec::new();
        // A fresh gateway still has news to tell; later, its news belongs to the step before.
        if route == Route::Oncewire && matches!(step, Step::First | Step::Restart) {
            self.stage.settle(route).await;
        }
        let mut before = self.stage.wire(route).await;
        for (index, file) in self.files_of(step).iter().enumerate() {
            self.progress.set_message(format!("{step}, {route}: {}", file.path));
            let resource = resource(step.edition(), index);
            let address = self.stage.address(route);
            let tls = (step == Step::Https).then(|| self.stage.tls());
            let elapsed = fetch(address, tls, &resource, &file.bytes, self.progress)
                .await
                .with_context(|| format!("moving {}, {step}, {route}", file.path))?;
            let after = self.stage.wire(route).await;
            costs.push(Cost { seconds: elapsed.as_secs_f64(), wire: after - before });
            before = after;
        }
        // The gateways' remaining news belongs to this step.
        self.stage.settle(route).await;
        if let Some(last) = costs.last_mut() {
            last.wire += self.stage.wire(route).await - before;
        }
        Ok(costs)
    }

    fn files_of(&self, step: Step) -> &[File] {
        self.files.of(step.edition())
    }
}

/// Returns the bytes of all steps, for the progress bar.
pub(crate) fn total(files: &Editions, with_baseline: bool) -> u64 {
    let both_ways = |step: &Step| 2 * sizes(files.of(step.edition()));
    let steps: u64 = Step::MAIN.iter().chain(&Step::OPAQUE).map(both_ways).sum();
    steps + if with_baseline { sizes(&files.original) } else { 0 }
}

impl Step {
    /// Returns the name in JSON.
    pub(crate) fn key(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::Again => "again",
            Self::Edit => "edit",
            Self::Restart => "restart",
            Self::Packed => "packed",
            Self::Https => "https",
        }
    }

    fn edition(self) -> Edition {
        match self {
            Self::First | Self::Again | Self::Restart => Edition::Original,
            Self::Edit => Edition::Edited,
            Self::Packed => Edition::Packed,
            Self::Https => Edition::Encrypted,
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::First => "first time",
            Self::Again => "again",
            Self::Edit => "after an edit",
            Self::Restart => "after a restart",
            Self::Packed => "packed file",
            Self::Https => "over HTTPS",
        })
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Direct => "without oncewire",
            Self::Baseline => "without oncewire, but with its congestion control",
            Self::Oncewire => "with oncewire",
        })
    }
}
