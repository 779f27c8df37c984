//! The file format of a history: one JSON object per line, so that it can be searched with grep and a parse error
//! names its line.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write as _};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::history::{ClientKind, History, Operation, Snapshot, WatchedWrite};

/// The file of a history could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The file could not be accessed.
    #[error("failed to access history file {0}: {1}")]
    Io(String, std::io::Error),
    /// A line could not be parsed.
    #[error("failed to parse line {1} of history file {0}: {2}")]
    Line(String, usize, serde_json::Error),
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum FileLine {
    Lanes(Vec<ClientKind>),
    Start(Snapshot),
    Op(Operation),
    Write(WatchedWrite),
    End(Snapshot),
}

impl History {
    /// Writes the history to a file.
    pub fn save(&self, path: &Path) -> Result<(), FileError> {
        let failed = |error| FileError::Io(path.display().to_string(), error);
        let mut file = BufWriter::new(File::create(path).map_err(failed)?);
        let head = [
            FileLine::Lanes(self.lanes.clone()),
            FileLine::Start(self.start.clone()),
        ];
        let ops = self.operations.iter().cloned().map(FileLine::Op);
        let log = self.writes.iter().copied().map(FileLine::Write);
        let end = self.end.clone().map(FileLine::End);
        for line in head.into_iter().chain(ops).chain(log).chain(end) {
            serde_json::to_writer(&mut file, &line).map_err(|error| failed(error.into()))?;
            file.write_all(b"\n").map_err(failed)?;
        }
        file.flush().map_err(failed)
    }

    /// Reads a history from a file.
    pub fn load(path: &Path) -> Result<Self, FileError> {
        let name = || path.display().to_string();
        let file = BufReader::new(File::open(path).map_err(|error| FileError::Io(name(), error))?);
        let mut history = Self::default();
        for (index, line) in file.lines().enumerate() {
            let line = line.map_err(|error| FileError::Io(name(), error))?;
            let line = serde_json::from_str(&line)
                .map_err(|error| FileError::Line(name(), index + 1, error))?;
            match line {
                FileLine::Lanes(lanes) => history.lanes = lanes,
                FileLine::Start(start) => history.start = start,
                FileLine::Op(op) => history.operations.push(op),
                FileLine::Write(write) => history.writes.push(write),
                FileLine::End(end) => history.end = Some(end),
            }
        }
        Ok(history)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::{self, HistoryShape};

    #[test]
    fn a_history_is_read_back_unchanged_from_its_file() {
        let history = simulate::history(
            7,
            &HistoryShape {
                operations: 500,
                ..HistoryShape::default()
            },
        );
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("history.jsonl");
        history.save(&path).unwrap();
        assert_eq!(History::load(&path).unwrap(), history);
    }

    #[test]
    fn a_parse_error_names_the_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("history.jsonl");
        std::fs::write(&path, "{\"lanes\":[]}\nwhat?\n").unwrap();
        let error = History::load(&path).unwrap_err().to_string();
        assert!(
            error.contains("line 2") && error.contains("history.jsonl"),
            "{error}"
        );
    }
}
