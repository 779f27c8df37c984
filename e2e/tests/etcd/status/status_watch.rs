//! A watch that collects every status that is written, not only those that polls would see.

use std::process::{Child, Stdio};
use std::thread::JoinHandle;

use evenkeel_e2e::Story;
use serde_json::Value;

/// A watch on the clusters of a namespace.
pub(super) struct StatusWatch {
    watch: Child,
    reader: Option<JoinHandle<Vec<Value>>>,
}

impl StatusWatch {
    /// Begins to watch.
    pub(super) fn begin(story: &Story) -> Self {
        let command = story.command(&["get", "etcd", "--watch", "--output=json"]);
        let quiet = |command: &mut std::process::Command| {
            _ = command
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::null());
        };
        let mut watch = command.spawn(quiet).unwrap();
        let printed = watch.stdout.take().unwrap();
        let reader = std::thread::spawn(move || {
            let objects = serde_json::Deserializer::from_reader(printed).into_iter::<Value>();
            // The last object may be incomplete when the watch is killed.
            let statuses = objects
                .map_while(Result::ok)
                .map(|object| object["status"].clone());
            let mut statuses: Vec<Value> = statuses.filter(|status| !status.is_null()).collect();
            statuses.dedup();
            statuses
        });
        Self {
            watch,
            reader: Some(reader),
        }
    }

    /// Returns the statuses in order, without repetitions.
    pub(super) fn end(mut self) -> Vec<Value> {
        self.stop();
        self.reader.take().unwrap().join().unwrap()
    }

    fn stop(&mut self) {
        // Both fail only if the process has exited before.
        let _ = self.watch.kill();
        let _ = self.watch.wait();
    }
}

impl Drop for StatusWatch {
    fn drop(&mut self) {
        self.stop();
    }
}
