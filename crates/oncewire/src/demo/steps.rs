//! The transfers that are shown.

use std::fmt;

use anyhow::Context;
use indicatif::ProgressBar;

use super::corpus::File;
use super::fetch::fetch;
use super::origin::{Edition, resource};
use super::report::Row;
use super::stage::{Route, Stage};

/// What is moved when.
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
}

impl Step {
    /// Those that go on without anything in between.
    pub(crate) const AT_ONCE: [Self; 3] = [Self::First, Self::Again, Self::Edit];
}

/// One run of the demonstration.
pub(crate) struct Show<'a> {
    pub(crate) stage: &'a Stage,
    pub(crate) files: &'a [File],
    pub(crate) edited: &'a [File],
    pub(crate) progress: &'a ProgressBar,
}

/// What one file cost by one route.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    seconds: f64,
    wire: u64,
}

impl Show<'_> {
    /// Moves all files in each of these steps, directly and then through the gateways.
    ///
    /// # Errors
    ///
    /// The first transfer that fails or differs.
    pub(crate) async fn steps(&self, steps: &[Step]) -> anyhow::Result<Vec<Row>> {
        let mut rows = Vec::new();
        for &step in steps {
            let direct = self.move_all(step, Route::Direct).await?;
            let oncewire = self.move_all(step, Route::Oncewire).await?;
            for ((file, direct), oncewire) in self.files_of(step).iter().zip(direct).zip(oncewire) {
                rows.push(Row {
                    step,
                    path: file.path.clone(),
                    delivered: file.bytes.len() as u64,
                    wire_direct: direct.wire,
                    wire: oncewire.wire,
                    seconds_direct: direct.seconds,
                    seconds: oncewire.seconds,
                });
            }
        }
        Ok(rows)
    }

    /// Returns how long the first step takes by a route.
    ///
    /// # Errors
    ///
    /// The first transfer that fails or differs.
    pub(crate) async fn seconds_by(&self, route: Route) -> anyhow::Result<f64> {
        let costs = self.move_all(Step::First, route).await?;
        Ok(costs.iter().map(|cost| cost.seconds).sum())
    }

    async fn move_all(&self, step: Step, route: Route) -> anyhow::Result<Vec<Cost>> {
        let mut costs = Vec::new();
        self.stage.settle(route).await;
        let mut before = self.stage.wire(route).await;
        for (index, file) in self.files_of(step).iter().enumerate() {
            self.progress.set_message(format!("{step}, {route}: {}", file.path));
            let resource = resource(step.edition(), index);
            let address = self.stage.address(route);
            let elapsed = fetch(address, &resource, &file.bytes, self.progress)
                .await
                .with_context(|| format!("moving {} {step}, {route}", file.path))?;
            let after = self.stage.wire(route).await;
            costs.push(Cost { seconds: elapsed.as_secs_f64(), wire: after - before });
            before = after;
        }
        // What the gateways still tell each other belongs to this step.
        self.stage.settle(route).await;
        if let Some(last) = costs.last_mut() {
            last.wire += self.stage.wire(route).await - before;
        }
        Ok(costs)
    }

    fn files_of(&self, step: Step) -> &[File] {
        match step.edition() {
            Edition::Original => self.files,
            Edition::Edited => self.edited,
        }
    }
}

impl Step {
    /// Returns the name in JSON.
    pub(crate) fn key(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::Again => "again",
            Self::Edit => "edit",
            Self::Restart => "restart",
        }
    }

    fn edition(self) -> Edition {
        match self {
            Self::First | Self::Again | Self::Restart => Edition::Original,
            Self::Edit => Edition::Edited,
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
        })
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Direct => "direct",
            Self::Baseline => "direct, bbr",
            Self::Oncewire => "oncewire",
        })
    }
}
