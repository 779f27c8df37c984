//! The scene file of a failed story, which has everything about the failure; the output has only the file's name and the begin of
//! the reason. CI shows the end of the output, and whole logs would push the reason out of it.

use std::cell::RefCell;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Once;

use serde_json::Value;

use crate::Story;
use crate::once::run_directory;

/// How many characters of a line the output shows.
const MAX_LINE_CHARS: usize = 1_500;

thread_local! {
    static REASON: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Installs a panic hook that stores the first panic of each thread.
pub(crate) fn install_panic_hook() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let default_hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            REASON.with_borrow_mut(|reason| {
                if reason.is_empty() {
                    panic.to_string().clone_into(reason);
                }
            });
            default_hook(panic);
        }));
    });
}

/// Returns the first panic of this thread: its place, and the first lines of its message.
pub(crate) fn reason() -> String {
    REASON.with_borrow(|reason| {
        reason
            .lines()
            .take(6)
            .map(shorten)
            .collect::<Vec<_>>()
            .join("\n")
    })
}

/// Returns the scene file of the story in a namespace.
pub(crate) fn file_of(namespace: &str) -> PathBuf {
    let run = run_directory().unwrap_or_else(|| std::env::temp_dir().join("evenkeel-e2e"));
    run.join("scenes").join(format!("{namespace}.txt"))
}

/// Appends a section to a scene file. Errors are only printed: the story has failed already.
pub(crate) fn append(file: &Path, title: &str, object_name: &str) {
    let write = || -> std::io::Result<()> {
        if let Some(dir) = file.parent() {
            std::fs::create_dir_all(dir)?;
        }
        let mut file = File::options().create(true).append(true).open(file)?;
        writeln!(file, "=== {title}\n{}\n", object_name.trim_end())
    };
    if let Err(error) = write() {
        eprintln!("failed to write the scene to {}: {error}", file.display());
    }
}

/// Writes the objects, decision logs, events and pod logs of a story.
pub(crate) fn write(story: &Story, file: &Path) {
    let kubectl = |args: &[&str]| {
        let args: Vec<_> = args
            .iter()
            .copied()
            .chain(["--request-timeout=10s"])
            .collect();
        story.try_kubectl(&args).unwrap_or_else(|error| error)
    };
    let json = |kind: &str| -> Vec<Value> {
        let list: Value =
            serde_json::from_str(&kubectl(&["get", kind, "-o", "json"])).unwrap_or_default();
        list["items"].as_array().cloned().unwrap_or_default()
    };
    append(file, "reason of the failure", &reason());
    append(file, "nodes", &kubectl(&["get", "nodes", "-o", "wide"]));
    let kinds = "pods,pvc,services,endpointslices,pdb,configmaps,secrets,leases,resourcequotas";
    append(file, "objects", &kubectl(&["get", kinds, "-o", "wide"]));
    let kinds = [
        "etcdclusters",
        "backupstores",
        "backups",
        "backupschedules",
        "restores",
        "killernewdbs",
    ];
    for kind in kinds {
        for resource in json(kind) {
            append(
                file,
                &format!("{kind}/{}", object_name(&resource)),
                &format!("{resource:#}"),
            );
        }
    }
    // Identities and decision logs; not the CA of the lab.
    for map in json("configmaps")
        .iter()
        .filter(|map| object_name(map) != "kube-root-ca.crt")
    {
        let data = map["data"].as_object().into_iter().flatten();
        let data: Vec<_> = data
            .map(|(key, value)| format!("{key}: {}", value.as_str().unwrap_or_default()))
            .collect();
        append(
            file,
            &format!("configmap/{}", object_name(map)),
            &data.join("\n"),
        );
    }
    append(
        file,
        "events",
        &kubectl(&["get", "events", "--sort-by=.lastTimestamp"]),
    );
    append(file, "pods", &kubectl(&["describe", "pods"]));
    for pod in json("pods") {
        let pod = object_name(&pod).to_owned();
        let logs = ["logs", &pod, "--all-containers", "--prefix", "--timestamps"];
        append(file, &format!("log of {pod}"), &kubectl(&logs));
        if let Ok(before) =
            story.try_kubectl(&[&logs[..], &["--previous", "--request-timeout=10s"]].concat())
        {
            append(
                file,
                &format!("log of the previous container in {pod}"),
                &before,
            );
        }
    }
}

fn object_name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

/// Cuts a line to its first characters.
pub(crate) fn shorten(line: &str) -> String {
    match line.char_indices().nth(MAX_LINE_CHARS) {
        Some((end, _)) => format!("{} ...", &line[..end]),
        None => line.to_owned(),
    }
}

/// Formats a line of the operator's JSON log: time, level, resource, message, other fields.
pub(crate) fn format_log_line(line: &str) -> String {
    let Ok(Value::Object(mut fields)) = serde_json::from_str(line) else {
        return line.to_owned();
    };
    let mut take = |key: &str| match fields.remove(key) {
        Some(Value::String(object_name)) => object_name,
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
