//! Obstacles in place of a configuration's directories.

use oncewire_store::Obstacle;

use super::Config;

impl Config {
    /// Lists the obstacles in place of `state` and of the chunk store's directory on this machine, one
    /// sentence each; the gateway would run without. Reads the disk, and changes nothing.
    pub fn obstacles(&self) -> Vec<String> {
        let state = self.gateway.state.as_deref().and_then(Obstacle::at);
        let store = self.store.as_ref().and_then(|store| Obstacle::at(&store.path));
        let lines = match (state, store) {
            (Some(state), Some(store)) if state == store => {
                [Some(format!("state in [gateway]: neither logs nor chunks are kept, since {state}")), None]
            }
            (state, store) => [
                state.map(|obstacle| format!("state in [gateway]: no logs are kept, since {obstacle}")),
                store.map(|obstacle| format!("store_path in [cache]: no chunks are kept, since {obstacle}")),
            ],
        };
        lines.into_iter().flatten().collect()
    }
}
