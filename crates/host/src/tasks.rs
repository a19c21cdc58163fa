//! The tasks of a gateway, all ending with it.

use std::future::Future;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::task::JoinSet;

/// A growing and shrinking set of tasks on one runtime.
#[derive(Debug)]
pub struct Tasks {
    runtime: Handle,
    set: Mutex<Option<JoinSet<()>>>,
}

impl Tasks {
    /// Makes an empty set on the runtime of the caller.
    #[allow(clippy::new_without_default, reason = "it takes the runtime of the caller")]
    pub fn new() -> Self {
        Self { runtime: Handle::current(), set: Mutex::new(Some(JoinSet::new())) }
    }

    /// Runs a task, from any thread; after [`Tasks::end`] it is dropped instead.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut set = self.set.lock();
        match set.as_mut() {
            Some(set) => {
                // Removes ended tasks: the set is as large as the running ones.
                while set.try_join_next().is_some() {}
                set.spawn_on(task, &self.runtime);
            }
            None => {
                // Dropping a task may spawn another; not under the lock.
                drop(set);
                drop(task);
            }
        }
    }

    /// Stops every task and refuses new ones.
    pub fn end(&self) {
        let set = self.set.lock().take();
        drop(set);
    }
}
