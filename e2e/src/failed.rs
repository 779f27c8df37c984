//! What is told of a story that failed: why, and no more than people read. CI shows the end of what was printed, and a log
//! in full would drive the reason out of it.

use std::cell::RefCell;
use std::sync::Once;

/// How much of a line is shown.
const LINE: usize = 1_500;

thread_local! {
    static WHY: RefCell<String> = const { RefCell::new(String::new()) };
}

/// From now on each thread knows why it panicked first.
pub(crate) fn remember() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            WHY.with_borrow_mut(|why| {
                if why.is_empty() {
                    panic.to_string().clone_into(why);
                }
            });
            usual(panic);
        }));
    });
}

/// Why this thread panicks: where, and the first lines of what it said.
pub(crate) fn why() -> String {
    WHY.with_borrow(|why| {
        why.lines()
            .take(6)
            .map(shortened)
            .collect::<Vec<_>>()
            .join("\n")
    })
}

/// As much of a line as is read.
pub(crate) fn shortened(line: &str) -> String {
    match line.char_indices().nth(LINE) {
        Some((end, _)) => format!("{} ...", &line[..end]),
        None => line.to_owned(),
    }
}

/// A line of the operator's log, as people read it: what is said, of whom, and the rest of its fields.
pub(crate) fn plain(line: &str) -> String {
    let Ok(serde_json::Value::Object(mut fields)) = serde_json::from_str(line) else {
        return shortened(line);
    };
    let mut take = |key: &str| match fields.remove(key) {
        Some(serde_json::Value::String(text)) => text,
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
    shortened(&format!("{time} {level} {of} {message} {}", rest.join(" ")))
}
