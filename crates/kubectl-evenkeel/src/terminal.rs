//! Formats text for a terminal of 80 columns: colors, tables and wrapped lines.

use std::io::IsTerminal;

use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::args::ColorMode;
use crate::commands;

/// The width of wrapped text, and the least width that a terminal is assumed to have.
pub(crate) const WIDTH: usize = 80;

/// The width of the labels on the status screen.
const LABEL_WIDTH: usize = 13;
/// The width of the first word after a label on the status screen.
const WORD_WIDTH: usize = 9;

/// The severity of a text, which decides its color.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Severity {
    /// No color.
    Neutral,
    /// Green.
    Good,
    /// Yellow.
    Warning,
    /// Red.
    Critical,
}

/// The properties of the terminal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terminal {
    has_colors: bool,
    /// The width that tables are truncated to.
    width: usize,
    /// The namespace that commands apply to without `-n`. It is leaked once, so that the terminal can be copied.
    context_namespace: Option<&'static str>,
    /// The namespace that suggested commands are about.
    namespace: Option<&'static str>,
}

impl Terminal {
    /// Detects the properties. By default, colors are used on a terminal only.
    pub(crate) fn new(mode: ColorMode) -> Self {
        let is_terminal = std::io::stdout().is_terminal();
        let allows_colors = is_terminal && std::env::var_os("NO_COLOR").is_none();
        let width = || {
            terminal_size::terminal_size()
                .map_or(WIDTH, |(width, _)| usize::from(width.0).max(WIDTH))
        };
        Self {
            has_colors: mode == ColorMode::Always || (mode == ColorMode::Auto && allows_colors),
            // Without a terminal, lines are as long as on the smallest one. `-o wide` truncates nothing.
            width: if is_terminal { width() } else { WIDTH },
            context_namespace: None,
            namespace: None,
        }
    }

    /// Sets the namespace that the kubeconfig selects, and the one that suggested commands are about.
    pub(crate) fn with_namespaces(self, context: &str, namespace: &str) -> Self {
        Self {
            context_namespace: Some(String::leak(context.to_owned())),
            namespace: Some(String::leak(namespace.to_owned())),
            ..self
        }
    }

    /// Adds the namespace to the commands in a text, if the kubeconfig selects another one.
    pub(crate) fn commands(self, text: &str) -> String {
        match self.namespace {
            Some(namespace) => self.commands_in(namespace, text),
            None => text.to_owned(),
        }
    }

    /// Adds a namespace to the commands in a text, if the kubeconfig selects another one.
    pub(crate) fn commands_in(self, namespace: &str, text: &str) -> String {
        match self.context_namespace {
            Some(context) if context != namespace => commands::in_namespace(text, namespace),
            _ => text.to_owned(),
        }
    }

    /// Wraps a text. Lines that begin with blanks or `- ` keep their indent.
    pub(crate) fn paragraphs(self, text: &str) -> String {
        let mut all = String::new();
        for line in text.lines() {
            let indent = line.len() - line.trim_start_matches([' ', '-']).len();
            let (bullet, rest) = line.split_at(indent);
            let mut bullet = bullet.to_owned();
            for part in wrap(&self.commands(rest), WIDTH - indent) {
                all.push_str(&format!("{bullet}{part}\n"));
                bullet = " ".repeat(indent);
            }
        }
        all
    }

    /// Aligns rows in columns. The last column is truncated to the rest of the line.
    pub(crate) fn table(self, rows: &[Vec<String>]) -> Vec<String> {
        table(rows, Some(self.width))
    }

    /// Colors a text by its severity.
    pub(crate) fn paint(self, severity: Severity, text: &str) -> String {
        let code = match severity {
            Severity::Good => "32",
            Severity::Warning => "33",
            Severity::Critical => "31",
            Severity::Neutral => return text.to_owned(),
        };
        self.with_code(code, text)
    }

    /// Makes a text bold.
    pub(crate) fn bold(self, text: &str) -> String {
        self.with_code("1", text)
    }

    fn with_code(self, code: &str, text: &str) -> String {
        let text = clean(text);
        if self.has_colors {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text
        }
    }

    /// Returns the width that a table may have.
    pub(crate) fn table_width(self) -> usize {
        self.width
    }

    /// Formats a text after a label of the status screen, with further lines indented.
    pub(crate) fn field(self, label: &str, text: &str) -> String {
        self.field_with_word(label, Severity::Neutral, "", text)
    }

    /// Formats a word with a color and a text after a label of the status screen, with further lines indented.
    pub(crate) fn field_with_word(
        self,
        label: &str,
        severity: Severity,
        word: &str,
        text: &str,
    ) -> String {
        let first_indent = match word.chars().count() {
            0 => LABEL_WIDTH,
            length => LABEL_WIDTH + (length + 1).max(WORD_WIDTH),
        };
        let text = &self.commands(text);
        let mut lines = wrap_first(text, WIDTH - first_indent, WIDTH - LABEL_WIDTH).into_iter();
        let padding = first_indent - LABEL_WIDTH - word.chars().count();
        let first = format!(
            "{}{}{:padding$}{}",
            self.bold(&format!("{label:<LABEL_WIDTH$}")),
            self.paint(severity, word),
            "",
            lines.next().unwrap_or_default()
        );
        let mut all = format!("{}\n", first.trim_end());
        for line in lines {
            all.push_str(&format!("{:LABEL_WIDTH$}{line}\n", ""));
        }
        all
    }

    /// Formats a text after a label, with further lines indented.
    pub(crate) fn labelled(self, label: &str, text: &str) -> String {
        const INDENT: usize = 17;
        let mut lines = wrap(&self.commands(text), WIDTH - INDENT).into_iter();
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

/// Replaces control characters. Texts come from other systems and could contain terminal escape sequences.
pub(crate) fn clean(text: &str) -> String {
    let is_printable = |letter: char| !letter.is_control() || letter == '\n' || letter == '\t';
    text.chars()
        .map(|letter| {
            if is_printable(letter) {
                letter
            } else {
                '\u{fffd}'
            }
        })
        .collect()
}

/// Wraps a text into lines of at most `width` characters, except for longer words.
pub(crate) fn wrap(text: &str, width: usize) -> Vec<String> {
    wrap_first(text, width, width)
}

/// Wraps a text into lines, the first of which has another width.
fn wrap_first(text: &str, first_width: usize, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in clean(text).split_whitespace() {
        let length = lines
            .last_mut()
            .map(|line| line.chars().count())
            .unwrap_or_default();
        let width = if lines.len() == 1 { first_width } else { width };
        if length > 0 && length + 1 + word.chars().count() > width {
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

/// Aligns rows in columns and truncates nothing.
pub(crate) fn full_table(rows: &[Vec<String>]) -> Vec<String> {
    table(rows, None)
}

/// Truncates a text to `width` characters.
pub(crate) fn truncate(text: &str, width: usize) -> String {
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
    let column_width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or_default()
    };
    let widths: Vec<usize> = (0..columns).map(column_width).collect();
    let line = |row: &Vec<String>| {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            if column + 1 == columns {
                let left = width.map(|width| width.saturating_sub(line.chars().count()).max(8));
                line.push_str(&left.map_or_else(|| cell.clone(), |left| truncate(cell, left)));
            } else {
                line.push_str(&format!("{cell:<width$}  ", width = widths[column]));
            }
        }
        let line = line.trim_end();
        width.map_or_else(|| line.to_owned(), |width| truncate(line, width))
    };
    rows.iter().map(line).collect()
}

/// Formats a number of bytes with a binary unit.
pub(crate) fn format_bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut unit = 0;
    #[expect(clippy::cast_precision_loss, reason = "at most one decimal is shown")]
    let mut amount = count as f64;
    while amount >= 1024.0 && unit + 1 < UNITS.len() {
        amount /= 1024.0;
        unit += 1;
    }
    let number = if unit == 0 || amount >= 10.0 {
        format!("{amount:.0}")
    } else {
        format!("{amount:.1}")
    };
    format!("{} {}", number.trim_end_matches(".0"), UNITS[unit])
}

/// Formats a number of seconds in its largest unit.
pub(crate) fn format_duration(seconds: i64) -> String {
    let seconds = seconds.max(0);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7200 => format!("{}m", seconds / 60),
        7200..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// Formats a number of seconds in its two largest units, such as 4m08s.
pub(crate) fn format_elapsed(seconds: i64) -> String {
    let seconds = seconds.max(0);
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
        _ => format!("{}d{}h", seconds / 86_400, seconds / 3600 % 24),
    }
}

/// Formats a time in UTC: the time of day if it is today, otherwise date, hour and minute.
pub(crate) fn format_time(time: Timestamp, now: Timestamp) -> String {
    let utc = |time: Timestamp| time.to_zoned(TimeZone::UTC);
    if utc(time).date() == utc(now).date() {
        utc(time).strftime("%H:%M:%SZ").to_string()
    } else {
        utc(time).strftime("%Y-%m-%dT%H:%MZ").to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_durations_are_exact() {
        assert_eq!(
            [5, 248, 7500, 273_600].map(format_elapsed),
            ["5s", "4m08s", "2h05m", "3d4h"]
        );
        let now: Timestamp = "2026-11-16T12:00:00Z".parse().unwrap();
        let soon: Timestamp = "2026-11-16T12:04:08Z".parse().unwrap();
        let later: Timestamp = "2026-11-18T14:38:20Z".parse().unwrap();
        assert_eq!(format_time(soon, now), "12:04:08Z");
        assert_eq!(format_time(later, now), "2026-11-18T14:38Z");
    }

    #[test]
    fn a_field_has_its_label_its_word_and_indented_lines() {
        let terminal = Terminal::new(ColorMode::Never);
        let text = "word ".repeat(20);
        let field = terminal.field_with_word("Health", Severity::Good, "OK", &text);
        let lines: Vec<_> = field.lines().collect();
        assert!(
            lines[0].starts_with("Health       OK       word word"),
            "{field}"
        );
        assert!(lines[1].starts_with("             word word"), "{field}");
        assert!(lines.iter().all(|line| line.len() <= WIDTH), "{field}");
        assert_eq!(terminal.field("Note", "a fact"), "Note         a fact\n");
    }

    #[test]
    fn an_output_without_a_terminal_has_80_columns() {
        let terminal = Terminal::new(ColorMode::Never);
        assert_eq!(terminal.table_width(), WIDTH);
        let rows = [vec!["NAME".to_owned(), "long ".repeat(40)]];
        assert_eq!(terminal.table(&rows)[0].chars().count(), WIDTH);
    }

    #[test]
    fn paragraphs_are_wrapped_and_keep_their_bullets() {
        let terminal = Terminal::new(ColorMode::Never).with_namespaces("default", "shop");
        let text = format!(
            "orders: {}\nWaits:\n  - {}\n",
            "word ".repeat(20),
            "see `kubectl evenkeel status orders` and ".repeat(2)
        );
        let wrapped = terminal.paragraphs(&text);
        assert!(wrapped.lines().all(|line| line.len() <= WIDTH), "{wrapped}");
        assert!(
            wrapped.contains("\nWaits:\n  - see `kubectl evenkeel status orders -n shop` and see"),
            "{wrapped}"
        );
        assert_eq!(wrapped.lines().count(), 5, "{wrapped}");
        assert!(
            wrapped.lines().last().unwrap().starts_with("    "),
            "{wrapped}"
        );
    }

    #[test]
    fn lines_fit_into_the_terminal() {
        let long = "a word and another ".repeat(20);
        assert!(
            wrap(&long, 70)
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
            full_table(&rows)[1].len() > WIDTH,
            "-o wide truncates nothing"
        );
    }

    #[test]
    fn colors_can_be_switched_off() {
        assert_eq!(
            Terminal::new(ColorMode::Never).paint(Severity::Critical, "text"),
            "text"
        );
        assert_eq!(
            Terminal::new(ColorMode::Always).paint(Severity::Critical, "text"),
            "\x1b[31mtext\x1b[0m"
        );
    }

    #[test]
    fn escape_sequences_do_not_reach_the_terminal() {
        let text = "text\u{1b}]0;title\u{7}\u{9b}2J";
        for printed in [
            clean(text),
            wrap(text, 80).join(""),
            table(&[vec![text.to_owned()]], None).join(""),
        ] {
            assert!(!printed.chars().any(char::is_control), "{printed:?}");
        }
        assert!(
            !Terminal::new(ColorMode::Never)
                .paint(Severity::Critical, text)
                .contains('\u{1b}')
        );
    }

    #[test]
    fn amounts_are_rounded_and_have_a_unit() {
        assert_eq!(
            [
                format_bytes(900),
                format_bytes(20_480),
                format_bytes(1_600_000),
                format_bytes(3 << 30)
            ],
            ["900 B", "20 KiB", "1.5 MiB", "3 GiB"]
        );
        assert_eq!(
            [
                format_duration(59),
                format_duration(600),
                format_duration(100_000),
                format_duration(900_000)
            ],
            ["59s", "10m", "27h", "10d"]
        );
    }
}
