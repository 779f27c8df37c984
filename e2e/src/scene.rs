//! What a failed story leaves: one file with all that tells why it failed, and in the output its name and the beginning of the
//! reason. CI shows the end of the output, and whole logs would drive the reason out of it.

use std::cell::RefCell;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Once;

use serde_json::Value;

use crate::Story;
use crate::once::run_directory;

/// How much of a line the output shows.
const LINE: usize = 1_500;

thread_local! {
    static REASON: RefCell<String> = const { RefCell::new(String::new()) };
}

/// From now on each thread remembers its first panic.
pub(crate) fn remember() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            REASON.with_borrow_mut(|reason| {
                if reason.is_empty() {
                    panic.to_string().clone_into(reason);
                }
            });
            usual(panic);
        }));
    });
}

/// The first panic of this thread: where, and the first lines of its message.
pub(crate) fn reason() -> String {
    REASON.with_borrow(|reason| {
        reason
            .lines()
            .take(6)
            .map(shortened)
            .collect::<Vec<_>>()
            .join("\n")
    })
}

/// The file of the scene of the story in this namespace.
pub(crate) fn file_of(namespace: &str) -> PathBuf {
    let run = run_directory().unwrap_or_else(|| std::env::temp_dir().join("evenkeel-e2e"));
    run.join("scenes").join(format!("{namespace}.txt"))
}

/// Appends a section to the file of a scene. A story that failed already must not fail again, so an error is only printed.
pub(crate) fn append(file: &Path, title: &str, text: &str) {
    let write = || -> std::io::Result<()> {
        if let Some(dir) = file.parent() {
            std::fs::create_dir_all(dir)?;
        }
        let mut file = File::options().create(true).append(true).open(file)?;
        writeln!(file, "=== {title}\n{}\n", text.trim_end())
    };
    if let Err(error) = write() {
        eprintln!("the scene cannot be written to {}: {error}", file.display());
    }
}

/// Writes all that Kubernetes has of a story: its objects, decision logs, events, and the logs of its pods.
pub(crate) fn write(story: &Story, file: &Path) {
    let look = |args: &[&str]| {
        let args: Vec<_> = args
            .iter()
            .copied()
            .chain(["--request-timeout=10s"])
            .collect();
        story.try_kubectl(&args).unwrap_or_else(|error| error)
    };
    let json = |kind: &str| -> Vec<Value> {
        let list: Value =
            serde_json::from_str(&look(&["get", kind, "-o", "json"])).unwrap_or_default();
        list["items"].as_array().cloned().unwrap_or_default()
    };
    append(file, "why the story failed", &reason());
    append(file, "nodes", &look(&["get", "nodes", "-o", "wide"]));
    let kinds = "pods,pvc,services,endpointslices,pdb,configmaps,secrets,leases,resourcequotas";
    append(file, "objects", &look(&["get", kinds, "-o", "wide"]));
    for kind in ["etcdclusters", "killernewdbs"] {
        for resource in json(kind) {
            append(
                file,
                &format!("{kind}/{}", text(&resource)),
                &format!("{resource:#}"),
            );
        }
    }
    // The identities and the decision logs; the authority of the lab tells nothing.
    for map in json("configmaps")
        .iter()
        .filter(|map| text(map) != "kube-root-ca.crt")
    {
        let data = map["data"].as_object().into_iter().flatten();
        let data: Vec<_> = data
            .map(|(key, value)| format!("{key}: {}", value.as_str().unwrap_or_default()))
            .collect();
        append(file, &format!("configmap/{}", text(map)), &data.join("\n"));
    }
    append(
        file,
        "events",
        &look(&["get", "events", "--sort-by=.lastTimestamp"]),
    );
    append(file, "pods", &look(&["describe", "pods"]));
    for pod in json("pods") {
        let pod = text(&pod).to_owned();
        let logs = ["logs", &pod, "--all-containers", "--prefix", "--timestamps"];
        append(file, &format!("log of {pod}"), &look(&logs));
        if let Ok(before) =
            story.try_kubectl(&[&logs[..], &["--previous", "--request-timeout=10s"]].concat())
        {
            append(
                file,
                &format!("log of the container before in {pod}"),
                &before,
            );
        }
    }
}

fn text(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

/// The beginning of a line.
pub(crate) fn shortened(line: &str) -> String {
    match line.char_indices().nth(LINE) {
        Some((end, _)) => format!("{} ...", &line[..end]),
        None => line.to_owned(),
    }
}

/// A line of the operator's log for people: the time, the level, the resource, the message, and the rest of its fields.
pub(crate) fn plain(line: &str) -> String {
    let Ok(Value::Object(mut fields)) = serde_json::from_str(line) else {
        return line.to_owned();
    };
    let mut take = |key: &str| match fields.remove(key) {
        Some(Value::String(text)) => text,
        _ => String::new(),
    };
    let (time, level, message, of) = (
        take("timestamp"),
        take("level"),
        take("message"),
        take("resource"),
    );
    take("target");
    let time = time.get(11..23).unwrap_or(&time);
    let rest: Vec<_> = fields
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    format!("{time} {level} {of} {message} {}", rest.join(" "))
}
