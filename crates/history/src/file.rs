//! A history in a file: one JSON object a line, so that a person can grep it and a damaged one says where.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write as _};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::history::{History, Kind, Op, Snapshot, Write};

/// A history's file could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The file itself.
    #[error("the history's file {0}: {1}")]
    Io(String, std::io::Error),
    /// Its content.
    #[error("line {1} of the history's file {0} is none of its kinds: {2}")]
    Line(String, usize, serde_json::Error),
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Line {
    Lanes(Vec<Kind>),
    Start(Snapshot),
    Op(Op),
    Write(Write),
    End(Snapshot),
}

impl History {
    /// Writes it to a file, one JSON object a line.
    pub fn save(&self, path: &Path) -> Result<(), FileError> {
        let failed = |error| FileError::Io(path.display().to_string(), error);
        let mut file = BufWriter::new(File::create(path).map_err(failed)?);
        let head = [
            Line::Lanes(self.lanes.clone()),
            Line::Start(self.start.clone()),
        ];
        let ops = self.ops.iter().cloned().map(Line::Op);
        let log = self.log.iter().copied().map(Line::Write);
        let end = self.end.clone().map(Line::End);
        for line in head.into_iter().chain(ops).chain(log).chain(end) {
            serde_json::to_writer(&mut file, &line).map_err(|error| failed(error.into()))?;
            file.write_all(b"\n").map_err(failed)?;
        }
        file.flush().map_err(failed)
    }

    /// Reads it back.
    pub fn load(path: &Path) -> Result<Self, FileError> {
        let name = || path.display().to_string();
        let file = BufReader::new(File::open(path).map_err(|error| FileError::Io(name(), error))?);
        let mut history = Self::default();
        for (index, line) in file.lines().enumerate() {
            let line = line.map_err(|error| FileError::Io(name(), error))?;
            let line = serde_json::from_str(&line)
                .map_err(|error| FileError::Line(name(), index + 1, error))?;
            match line {
                Line::Lanes(lanes) => history.lanes = lanes,
                Line::Start(start) => history.start = start,
                Line::Op(op) => history.ops.push(op),
                Line::Write(write) => history.log.push(write),
                Line::End(end) => history.end = Some(end),
            }
        }
        Ok(history)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::{self, Shape};

    #[test]
    fn a_history_comes_back_from_its_file_unchanged() {
        let history = simulate::history(
            7,
            &Shape {
                ops: 500,
                ..Shape::default()
            },
        );
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("history.jsonl");
        history.save(&path).unwrap();
        assert_eq!(History::load(&path).unwrap(), history);
    }

    #[test]
    fn a_damaged_file_names_the_line() {
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
