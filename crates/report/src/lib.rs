//! Telemetry: `status`, `flows` and metrics, all from one snapshot.
//!
//! The JSON is a contract, described in `docs/reference/json.md`: keys are added, never renamed or removed.

mod cleared;
mod destinations;
mod discovery;
mod flows;
mod group;
mod metrics;
mod not_coded;
mod refusals;
mod status;
mod store;

pub use cleared::{ClearReport, ClearedReport};
pub use destinations::{
    DestinationFigures, DestinationReport, DestinationTable, DestinationsReport, FlowFigures, OpenFlows,
};
pub use discovery::DiscoveryReport;
pub use flows::{FlowReport, FlowsReport};
pub use group::GroupReport;
pub use metrics::encode as encode_metrics;
pub use not_coded::{NotCoded, NotCodedCounter, NotCodedTable, Outcome, Reason};
pub use refusals::{Refusal, RefusalCount, Refusals};
pub use status::{
    GatewayReport, InReport, InterceptReport, LanesReport, LinkState, LogStartReport, NamesIn, NamesOut,
    NetworkReport, OutReport, PeerReport, PlanReport, StatusReport,
};
pub use store::{CompactReport, LevelReport, StoreCondition, StoreReport, VerifyReport};
