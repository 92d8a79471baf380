//! Draws `top`. Texts go through the cells of a buffer, which take no control characters, so that a key that a client chose
//! cannot reach the terminal as a command.

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{self, Block, Cell, Clear, Paragraph, Sparkline, Wrap};

use super::numbers::{count, duration, rate};
use super::tables::{Pane, Table, Tone, refused_in_all};
use super::view::{Prompt, View};

/// Draws everything, and keeps what is scrolled within what there is.
pub(super) fn draw(frame: &mut Frame<'_>, view: &mut View) {
    let graph = if frame.area().height >= TALL { 6 } else { 3 };
    let parts = [Constraint::Length(2), Constraint::Length(graph), Constraint::Min(4), Constraint::Length(1)];
    let [head, graph, body, foot] = Layout::vertical(parts).areas(frame.area());
    draw_head(frame, head, view);
    draw_graph(frame, graph, view);
    match frame.area().width >= WIDE && frame.area().height >= TALL {
        true => draw_all(frame, body, view),
        false => draw_one(frame, body, view),
    }
    if view.answer.is_some() {
        draw_answer(frame, body, view);
    }
    draw_foot(frame, foot, view);
}

fn draw_head(frame: &mut Frame<'_>, area: Rect, view: &View) {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let state = match &view.away {
        None => Span::styled("live", Style::new().fg(Color::Green)),
        Some(why) => Span::styled(why.clone(), Style::new().fg(Color::Yellow)),
    };
    let Some(summary) = &view.summary else {
        let line = Line::from(vec![
            Span::styled("sluicegate ", bold),
            Span::raw(view.place.clone()),
            " ".into(),
            state,
        ]);
        return frame.render_widget(Paragraph::new(line), area);
    };
    let word = |field: &str| summary[field].as_str().unwrap_or_default().to_owned();
    let configuration = &summary["configuration"];
    let first = Line::from(vec![
        Span::styled("sluicegate ", bold),
        Span::raw(format!("{} ({})  {}  ", word("node"), view.place, view.phase())),
        state,
        Span::raw(format!(
            "  configuration {} {}",
            count(&configuration["generation"]),
            if configuration["last-reload"]["in-force"] == false { "(last reload refused)" } else { "" }
        )),
    ]);
    let requests = &summary["requests"];
    let denied = refused_in_all(&summary["policies"]);
    let tone = if denied > 0.0 { Style::new().fg(Color::Red) } else { Style::new() };
    let second = Line::from(vec![
        Span::raw(format!("requests/s {}  ", rate(&requests["per-second"]))),
        Span::styled(format!("refused/s {}  ", rate(&denied.into())), tone),
        Span::raw(format!(
            "5xx/s {}  median {}  99 % {}  connections {}",
            rate(&requests["5xx"]),
            duration(&requests["p50"]),
            duration(&requests["p99"]),
            count(&summary["connections"]["open"])
        )),
    ]);
    frame.render_widget(Paragraph::new(vec![first, second]), area);
}

/// Requests by second on the left, refused ones on the right.
fn draw_graph(frame: &mut Frame<'_>, area: Rect, view: &View) {
    let halves = Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]).areas::<2>(area);
    let colours = [("requests/s", Color::Cyan), ("refused/s", Color::Red)];
    for (index, (area, (title, colour))) in halves.into_iter().zip(colours).enumerate() {
        let width = usize::from(area.width);
        let skipped = view.history.len().saturating_sub(width);
        let data: Vec<u64> = view.history.iter().skip(skipped).map(|moment| moment[index]).collect();
        let title = Line::styled(title, Style::new().fg(colour));
        let graph = Sparkline::default().data(data).style(Style::new().fg(colour));
        frame.render_widget(graph.block(Block::new().title_top(title)), area);
    }
}

/// All panes at once, on a large terminal.
fn draw_all(frame: &mut Frame<'_>, area: Rect, view: &mut View) {
    let rows = Layout::vertical([Constraint::Fill(1); 3]).areas::<3>(area);
    let places =
        rows.into_iter().flat_map(|row| Layout::horizontal([Constraint::Fill(1); 2]).areas::<2>(row));
    for (pane, place) in Pane::ALL.into_iter().zip(places) {
        let is_chosen = pane == view.pane;
        let colour = if is_chosen { Color::Cyan } else { Color::DarkGray };
        let block = Block::bordered().title(pane.title()).border_style(Style::new().fg(colour));
        let inner = block.inner(place);
        frame.render_widget(block, place);
        let table = pane.table(view);
        if is_chosen {
            view.scrolled = view.scrolled.min(table.rows.len().saturating_sub(1));
        }
        draw_table(frame, inner, &table, if is_chosen { view.scrolled } else { 0 });
    }
}

/// The chosen pane, beneath the names of all.
fn draw_one(frame: &mut Frame<'_>, area: Rect, view: &mut View) {
    let [names, body] = Layout::vertical([Constraint::Length(1), Constraint::Min(1)]).areas(area);
    let chosen = Style::new().add_modifier(Modifier::REVERSED);
    let name = |pane: Pane| {
        let style = if pane == view.pane { chosen } else { Style::new() };
        [Span::styled(format!(" {} ", pane.title()), style), Span::raw(" ")]
    };
    frame.render_widget(Paragraph::new(Line::from_iter(Pane::ALL.into_iter().flat_map(name))), names);
    let table = view.pane.table(view);
    view.scrolled = view.scrolled.min(table.rows.len().saturating_sub(1));
    draw_table(frame, body, &table, view.scrolled);
}

fn draw_table(frame: &mut Frame<'_>, area: Rect, table: &Table, scrolled: usize) {
    if table.rows.is_empty() {
        let none = Paragraph::new(table.none.as_str()).wrap(Wrap { trim: true });
        return frame.render_widget(none.style(Style::new().fg(Color::DarkGray)), area);
    }
    let widths = table.columns.iter().map(|(_, width)| match width {
        0 => Constraint::Fill(1),
        width => Constraint::Length(width.unsigned_abs()),
    });
    let cell = |(text, (_, width)): (&str, &(&str, i16))| {
        let alignment = if *width < 0 { Alignment::Right } else { Alignment::Left };
        Cell::from(Line::from(text.to_owned()).alignment(alignment))
    };
    let header = table.columns.iter().map(|column| cell((column.0, column)));
    let header = widgets::Row::new(header).style(Style::new().fg(Color::DarkGray));
    let rows = table.rows.iter().skip(scrolled).map(|row| {
        let cells = row.cells.iter().map(String::as_str).zip(&table.columns).map(cell);
        widgets::Row::new(cells).style(match row.tone {
            Tone::Plain => Style::new(),
            Tone::Bad => Style::new().fg(Color::Red),
            Tone::Soft => Style::new().fg(Color::DarkGray),
        })
    });
    frame.render_widget(widgets::Table::new(rows, widths).header(header), area);
}

fn draw_answer(frame: &mut Frame<'_>, area: Rect, view: &mut View) {
    let text = view.answer.as_deref().unwrap_or_default();
    let shown = if text.is_empty() { "asking" } else { text };
    view.scrolled = view.scrolled.min(shown.lines().count().saturating_sub(1));
    let block = Block::bordered().title("Response (Esc closes)").border_style(Style::new().fg(Color::Cyan));
    let top = u16::try_from(view.scrolled).unwrap_or(u16::MAX);
    let answer = Paragraph::new(shown).block(block).wrap(Wrap { trim: false }).scroll((top, 0));
    frame.render_widget(Clear, area);
    frame.render_widget(answer, area);
}

fn draw_foot(frame: &mut Frame<'_>, area: Rect, view: &View) {
    let line = match &view.typing {
        Some(typing) => {
            let label = match typing.what {
                Prompt::RequestId => "request id: ",
                Prompt::Request => "explain (as GET /path): ",
            };
            // The end of a line that is longer than the terminal, because that is what is being typed.
            let room = usize::from(area.width).saturating_sub(label.len() + 1);
            let skipped = typing.text.chars().count().saturating_sub(room);
            let end: String = typing.text.chars().skip(skipped).collect();
            format!("{label}{end}_")
        }
        None => "q quit  Tab next  / find a request id  e explain a request  arrows scroll".to_owned(),
    };
    frame.render_widget(Paragraph::new(line).style(Style::new().add_modifier(Modifier::DIM)), area);
}

/// From this width on, and this height, all panes are shown.
const WIDE: u16 = 150;
const TALL: u16 = 40;
