//! Text for a terminal of 80 columns: colours where they are wanted, tables, and lines that wrap.

use std::io::IsTerminal;

use crate::args::Colour;

/// As wide as a terminal surely is.
pub(crate) const WIDTH: usize = 80;

/// How good news is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Mood {
    /// Nothing special.
    Plain,
    /// All is well.
    Good,
    /// To be looked at.
    Warning,
    /// Not as it should be.
    Bad,
}

/// How to write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Screen {
    colours: bool,
    /// How wide a table may be: as the terminal is; whatever reads a pipe gets all of it.
    width: Option<usize>,
}

impl Screen {
    /// As the user wants it: by default with colours on a terminal alone.
    pub(crate) fn new(when: Colour) -> Self {
        let terminal = std::io::stdout().is_terminal();
        let wanted = terminal && std::env::var_os("NO_COLOR").is_none();
        let width = || {
            terminal_size::terminal_size()
                .map_or(WIDTH, |(width, _)| usize::from(width.0).max(WIDTH))
        };
        Self {
            colours: when == Colour::Always || (when == Colour::Auto && wanted),
            width: terminal.then(width),
        }
    }

    /// Rows under a heading, each column as wide as it must be; the last one is cut to what is left of the line.
    pub(crate) fn table(self, rows: &[Vec<String>]) -> Vec<String> {
        table(rows, self.width)
    }

    /// In the colour of its mood.
    pub(crate) fn paint(self, mood: Mood, text: &str) -> String {
        let code = match mood {
            Mood::Good => "32",
            Mood::Warning => "33",
            Mood::Bad => "31",
            Mood::Plain => return text.to_owned(),
        };
        self.coded(code, text)
    }

    /// Set off from the rest.
    pub(crate) fn bold(self, text: &str) -> String {
        self.coded("1", text)
    }

    fn coded(self, code: &str, text: &str) -> String {
        let text = clean(text);
        if self.colours {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text
        }
    }

    /// A line that begins with a word, and wraps below itself.
    pub(crate) fn labelled(self, label: &str, text: &str) -> String {
        const INDENT: usize = 10;
        let mut lines = wrapped(text, WIDTH - INDENT).into_iter();
        let first = lines.next().unwrap_or_default();
        let mut all = format!(
            "{}{first}\n",
            self.bold(&format!("{:<INDENT$}", format!("{label}:")))
        );
        for line in lines {
            all.push_str(&format!("{:INDENT$}{line}\n", ""));
        }
        all
    }
}

/// A text without what a terminal would obey: what is shown was written by others.
pub(crate) fn clean(text: &str) -> String {
    let is_plain = |letter: char| !letter.is_control() || letter == '\n' || letter == '\t';
    text.chars()
        .map(|letter| if is_plain(letter) { letter } else { '\u{fffd}' })
        .collect()
}

/// The lines of a text, none longer than `width` unless a single word is.
pub(crate) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in clean(text).split_whitespace() {
        let last = lines
            .last_mut()
            .map(|line| line.chars().count())
            .unwrap_or_default();
        if last > 0 && last + 1 + word.chars().count() > width {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}

/// A text that is not longer than `width`.
pub(crate) fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars()
        .take(width.saturating_sub(1))
        .chain(['…'])
        .collect()
}

fn table(rows: &[Vec<String>], width: Option<usize>) -> Vec<String> {
    let rows: Vec<Vec<String>> = rows
        .iter()
        .map(|row| row.iter().map(|cell| clean(cell)).collect())
        .collect();
    let columns = rows.iter().map(Vec::len).max().unwrap_or_default();
    let needed = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or_default()
    };
    let widths: Vec<usize> = (0..columns).map(needed).collect();
    let line = |row: &Vec<String>| {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            if column + 1 == columns {
                let left = width.map(|width| width.saturating_sub(line.chars().count()).max(8));
                line.push_str(&left.map_or_else(|| cell.clone(), |left| cut(cell, left)));
            } else {
                line.push_str(&format!("{cell:<width$}  ", width = widths[column]));
            }
        }
        line.trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

/// A number of bytes, for people.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut unit = 0;
    #[expect(clippy::cast_precision_loss, reason = "two digits are shown")]
    let mut amount = count as f64;
    while amount >= 1024.0 && unit + 1 < UNITS.len() {
        amount /= 1024.0;
        unit += 1;
    }
    if unit == 0 || amount >= 10.0 {
        format!("{amount:.0} {}", UNITS[unit])
    } else {
        format!("{amount:.1} {}", UNITS[unit])
    }
}

/// A length of time, in its largest units.
pub(crate) fn span(seconds: i64) -> String {
    let seconds = seconds.max(0);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7200 => format!("{}m", seconds / 60),
        7200..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_wider_than_a_terminal() {
        let long = "a word and another ".repeat(20);
        assert!(
            wrapped(&long, 70)
                .iter()
                .all(|line| line.chars().count() <= 70)
        );
        let rows = vec![
            vec!["NAME".to_owned(), "STATUS".to_owned()],
            vec!["orders".to_owned(), long],
        ];
        let lines = table(&rows, Some(WIDTH));
        assert!(
            lines.iter().all(|line| line.chars().count() <= WIDTH),
            "{lines:?}"
        );
        assert!(lines[1].ends_with('…'));
        assert!(
            table(&rows, None)[1].len() > WIDTH,
            "but whatever reads a pipe gets all of it"
        );
    }

    #[test]
    fn colours_are_left_out_where_nobody_wants_them() {
        assert_eq!(Screen::new(Colour::Never).paint(Mood::Bad, "no"), "no");
        assert_eq!(
            Screen::new(Colour::Always).paint(Mood::Bad, "no"),
            "\x1b[31mno\x1b[0m"
        );
    }

    #[test]
    fn what_others_have_written_does_not_steer_the_terminal() {
        let evil = "fine\u{1b}]0;gotcha\u{7}\u{9b}2J";
        for shown in [
            clean(evil),
            wrapped(evil, 80).join(""),
            table(&[vec![evil.to_owned()]], None).join(""),
        ] {
            assert!(!shown.chars().any(char::is_control), "{shown:?}");
        }
        assert!(
            !Screen::new(Colour::Never)
                .paint(Mood::Bad, evil)
                .contains('\u{1b}')
        );
    }

    #[test]
    fn amounts_are_short() {
        assert_eq!(
            [bytes(900), bytes(20_480), bytes(1_600_000)],
            ["900 B", "20 KiB", "1.5 MiB"]
        );
        assert_eq!(
            [span(59), span(600), span(100_000), span(900_000)],
            ["59s", "10m", "27h", "10d"]
        );
    }
}
