//! Every status that was ever written, not only those that a look now and then would catch.

use std::process::{Child, Stdio};
use std::thread::JoinHandle;

use evenkeel_e2e::Story;
use serde_json::Value;

/// A watch on the clusters of a namespace.
pub(super) struct Followed {
    watch: Child,
    reader: Option<JoinHandle<Vec<Value>>>,
}

impl Followed {
    /// Begins to watch: what is written from now on is seen.
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
            // It ends in the middle of an object, maybe, when it is killed.
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

    /// The statuses in their order; each once, however long it stood.
    pub(super) fn end(mut self) -> Vec<Value> {
        self.stop();
        self.reader.take().unwrap().join().unwrap()
    }

    fn stop(&mut self) {
        // Neither fails but when it has ended before.
        let _ = self.watch.kill();
        let _ = self.watch.wait();
    }
}

impl Drop for Followed {
    fn drop(&mut self) {
        self.stop();
    }
}
