// SPDX-License-Identifier: GPL-2.0

//! View that the user has chosen, and how keys change it. Keys are those of htop, as far as they apply.

use super::input::Key;
use super::list::{self, Peer, Sort};
use std::net::IpAddr;

/// Something that the caller has to do after a key.
#[derive(Debug, PartialEq)]
pub(super) enum Action {
    None,
    Quit,
    /// Clear the screen first.
    Redraw,
    /// Stop, as other programs do at Ctrl-Z.
    Suspend,
    /// Show the way to a peer, which has this address.
    Way(Option<IpAddr>),
}

/// Overlay in front of the list, which gets the keys.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Front {
    Nothing,
    Help,
    /// The menu of columns, with the place of the cursor.
    Sort(usize),
    Filter,
    /// Text that is looked for.
    Search(String),
    /// Lines about a peer.
    Way(Vec<String>),
}

/// The view: order, filter, selection.
#[derive(Debug)]
pub(super) struct View {
    sort: Sort,
    inverted: bool,
    filter: String,
    paused: bool,
    front: Front,
    selected: Option<list::Key>,
    /// The first peer on the screen, and how many are there.
    first: usize,
    page: usize,
}

impl View {
    pub(super) fn new(sort: Sort, filter: &str) -> View {
        View {
            sort,
            inverted: false,
            filter: filter.to_owned(),
            paused: false,
            front: Front::Nothing,
            selected: None,
            first: 0,
            page: 1,
        }
    }

    pub(super) fn sort(&self) -> Sort {
        self.sort
    }

    pub(super) fn is_inverted(&self) -> bool {
        self.inverted
    }

    pub(super) fn filter(&self) -> &str {
        &self.filter
    }

    pub(super) fn front(&self) -> &Front {
        &self.front
    }

    pub(super) fn is_paused(&self) -> bool {
        self.paused
    }

    /// Shows lines about the selected peer.
    pub(super) fn show_way(&mut self, lines: Vec<String>) {
        self.front = Front::Way(lines);
    }

    /// The peers that pass the filter, in order.
    pub(super) fn shown<'a>(&self, peers: &'a [Peer]) -> Vec<&'a Peer> {
        let mut shown: Vec<&Peer> = peers.iter().filter(|p| has(p, &self.filter)).collect();
        list::sort(&mut shown, self.sort, self.inverted);
        shown
    }

    /// Place of the selected peer.
    pub(super) fn selected(&self, shown: &[&Peer]) -> Option<usize> {
        let selected = self.selected.as_ref()?;
        shown.iter().position(|peer| peer.key() == *selected)
    }

    /// The first peer that fits on a page of that many lines, so that the selected one is on it.
    pub(super) fn scroll(&mut self, shown: &[&Peer], page: usize) -> usize {
        self.page = page.max(1);
        let last = shown.len().saturating_sub(self.page);
        match self.selected(shown) {
            Some(at) => {
                let from = (at + 1).saturating_sub(self.page);
                self.first = self.first.clamp(from, at);
            }
            None => self.first = 0,
        }
        self.first = self.first.min(last);
        self.first
    }

    /// Obeys a key.
    pub(super) fn press(&mut self, key: Key, peers: &[Peer]) -> Action {
        match key {
            Key::Ctrl('c') => return Action::Quit,
            Key::Ctrl('l') => return Action::Redraw,
            Key::Ctrl('z') => return Action::Suspend,
            _ => {}
        }
        match &mut self.front {
            Front::Nothing => self.press_in_list(key, peers),
            Front::Help | Front::Way(_) => {
                self.front = Front::Nothing;
                Action::None
            }
            Front::Sort(at) => {
                let at = *at;
                self.press_in_menu(key, at)
            }
            Front::Filter => {
                self.press_in_filter(key);
                Action::None
            }
            Front::Search(text) => {
                let text = std::mem::take(text);
                self.press_in_search(key, text, peers);
                Action::None
            }
        }
    }

    fn press_in_list(&mut self, key: Key, peers: &[Peer]) -> Action {
        match key {
            Key::Char('q') | Key::Function(10) => return Action::Quit,
            Key::Char('?' | 'h') | Key::Function(1) => self.front = Front::Help,
            Key::Char('/') | Key::Function(3) => self.front = Front::Search(String::new()),
            Key::Char('\\') | Key::Function(4) => self.front = Front::Filter,
            Key::Char('>' | '.' | '<' | ',') | Key::Function(6) => {
                let at = Sort::ALL.iter().position(|sort| *sort == self.sort);
                self.front = Front::Sort(at.unwrap_or(0));
            }
            Key::Char('I') => self.inverted = !self.inverted,
            Key::Char('N') => self.sort_by(Sort::Peer),
            Key::Char('P') => self.sort_by(Sort::Traffic),
            Key::Char('T') => self.sort_by(Sort::RxBits),
            Key::Char('Z' | 'z') => self.paused = !self.paused,
            Key::Enter => return self.way(peers),
            Key::Escape => self.selected = None,
            Key::Up | Key::Char('k') => self.step(peers, |at, _| at.saturating_sub(1)),
            Key::Down | Key::Char('j') => self.step(peers, |at, _| at.saturating_add(1)),
            Key::PageUp => self.step(peers, usize::saturating_sub),
            Key::PageDown => self.step(peers, usize::saturating_add),
            Key::Home => self.step(peers, |_, _| 0),
            Key::End => self.step(peers, |_, _| usize::MAX),
            _ => {}
        }
        Action::None
    }

    fn sort_by(&mut self, sort: Sort) {
        self.sort = sort;
        self.inverted = false;
    }

    /// Selects another peer: `to` gets the place of the one before and the length of a page. The first one is selected if
    /// there was none.
    fn step(&mut self, peers: &[Peer], to: impl Fn(usize, usize) -> usize) {
        let shown = self.shown(peers);
        let at = match self.selected(&shown) {
            Some(at) => to(at, self.page),
            // Towards the end, the step is to the first one.
            None => to(0, self.page).saturating_sub(1),
        };
        let at = at.min(shown.len().saturating_sub(1));
        self.selected = shown.get(at).map(|peer| peer.key());
    }

    fn way(&self, peers: &[Peer]) -> Action {
        let shown = self.shown(peers);
        let selected = self.selected(&shown).and_then(|at| shown.get(at));
        selected.map_or(Action::None, |peer| Action::Way(peer.ips.first().copied()))
    }

    fn press_in_menu(&mut self, key: Key, at: usize) -> Action {
        let last = Sort::ALL.len() - 1;
        let to = match key {
            Key::Up | Key::Char('k') => at.saturating_sub(1),
            Key::Down | Key::Char('j') => (at + 1).min(last),
            Key::Home | Key::PageUp => 0,
            Key::End | Key::PageDown => last,
            Key::Enter | Key::Function(6) => {
                if let Some(sort) = Sort::ALL.get(at) {
                    self.sort_by(*sort);
                }
                self.front = Front::Nothing;
                return Action::None;
            }
            Key::Escape | Key::Char('q') | Key::Function(10) => {
                self.front = Front::Nothing;
                return Action::None;
            }
            _ => at,
        };
        self.front = Front::Sort(to);
        Action::None
    }

    fn press_in_filter(&mut self, key: Key) {
        match key {
            Key::Char(c) => self.filter.push(c),
            Key::Backspace => {
                self.filter.pop();
            }
            Key::Enter | Key::Function(4) => self.front = Front::Nothing,
            Key::Escape => {
                self.filter.clear();
                self.front = Front::Nothing;
            }
            _ => {}
        }
    }

    /// Selects the first peer that has the text; with F3, the next one.
    fn press_in_search(&mut self, key: Key, mut text: String, peers: &[Peer]) {
        match key {
            Key::Char(c) => {
                text.push(c);
                self.find(&text, peers, 0);
            }
            Key::Backspace => {
                text.pop();
                self.find(&text, peers, 0);
            }
            Key::Function(3) => {
                let at = self.selected(&self.shown(peers));
                self.find(&text, peers, at.map_or(0, |at| at + 1));
            }
            Key::Enter | Key::Escape => {
                self.front = Front::Nothing;
                return;
            }
            _ => {}
        }
        self.front = Front::Search(text);
    }

    /// Selects the first peer with the text from a place on, then from the beginning.
    fn find(&mut self, text: &str, peers: &[Peer], from: usize) {
        let shown = self.shown(peers);
        let places = (from..shown.len()).chain(0..from.min(shown.len()));
        let found = places.map(|at| shown[at]).find(|peer| has(peer, text));
        if let (Some(peer), false) = (found, text.is_empty()) {
            self.selected = Some(peer.key());
        }
    }
}

/// Returns true if a peer's line has the text.
fn has(peer: &Peer, text: &str) -> bool {
    text.is_empty()
        || peer.ips.iter().any(|ip| ip.to_string().contains(text))
        || peer.gid.contains(text)
        || peer.interface.contains(text)
        || peer.state().contains(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Peers 10.1.0.1, 10.1.0.2 and so on.
    fn peers(count: u8) -> Vec<Peer> {
        let one = |n: u8| Peer {
            interface: format!("ib{}", n % 2),
            ips: vec![IpAddr::from([10, 1, 0, n])],
            gid: format!("fe80::{n:x}"),
            neighbour: if n == 3 { "failed" } else { "reachable" }.into(),
            ..Peer::default()
        };
        (1..=count).map(one).collect()
    }

    fn view() -> View {
        let mut view = View::new(Sort::Peer, "");
        view.page = 4;
        view
    }

    /// The last number of the selected peer's address.
    fn selected(view: &View, peers: &[Peer]) -> Option<usize> {
        view.selected(&view.shown(peers)).map(|at| at + 1)
    }

    fn press_all(view: &mut View, peers: &[Peer], keys: &[Key]) {
        for key in keys {
            assert_eq!(view.press(*key, peers), Action::None, "{key:?}");
        }
    }

    fn typed(text: &str) -> Vec<Key> {
        text.chars().map(Key::Char).collect()
    }

    #[test]
    fn keys_move_the_selection() {
        let peers = peers(10);
        let mut view = view();
        assert_eq!(selected(&view, &peers), None);
        for (key, at) in [
            (Key::Down, 1),
            (Key::Down, 2),
            (Key::Up, 1),
            (Key::Up, 1),
            (Key::PageDown, 5),
            (Key::PageDown, 9),
            (Key::PageDown, 10),
            (Key::PageUp, 6),
            (Key::Home, 1),
            (Key::End, 10),
            (Key::Char('k'), 9),
            (Key::Char('j'), 10),
        ] {
            press_all(&mut view, &peers, &[key]);
            assert_eq!(selected(&view, &peers), Some(at), "{key:?}");
        }
        press_all(&mut view, &peers, &[Key::Escape, Key::End]);
        assert_eq!(selected(&view, &peers), Some(10));
        press_all(&mut view, &peers, &[Key::Escape, Key::Up]);
        assert_eq!(selected(&view, &peers), Some(1));
        // Nothing to select.
        press_all(&mut view, &[], &[Key::Down, Key::Enter, Key::End]);
        assert_eq!(selected(&view, &[]), None);
    }

    #[test]
    fn the_selected_peer_is_on_the_page() {
        let peers = peers(10);
        let mut view = view();
        let first = |view: &mut View| {
            let shown = view.shown(&peers);
            view.scroll(&shown, 4)
        };
        assert_eq!(first(&mut view), 0);
        press_all(&mut view, &peers, &[Key::End]);
        assert_eq!(first(&mut view), 6);
        press_all(&mut view, &peers, &[Key::Up, Key::Up, Key::Up]);
        assert_eq!(first(&mut view), 6);
        press_all(&mut view, &peers, &[Key::Up]);
        assert_eq!(first(&mut view), 5);
        press_all(&mut view, &peers, &[Key::Escape]);
        assert_eq!(first(&mut view), 0);
        // A larger page than there are peers, and none at all.
        press_all(&mut view, &peers, &[Key::End]);
        let shown = view.shown(&peers);
        assert_eq!((view.scroll(&shown, 40), view.scroll(&[], 0)), (0, 0));
    }

    #[test]
    fn the_selection_follows_a_peer() {
        let peers = peers(10);
        let mut view = view();
        press_all(&mut view, &peers, &[Key::Down, Key::Down, Key::Char('I')]);
        assert_eq!(selected(&view, &peers), Some(9));
        press_all(&mut view, &peers, &[Key::Char('N')]);
        assert_eq!(selected(&view, &peers), Some(2));
        assert_eq!(selected(&view, &peers[..1]), None);
    }

    #[test]
    fn a_filter_leaves_peers_out() {
        let peers = peers(12);
        let mut view = view();
        press_all(&mut view, &peers, &[Key::Function(4)]);
        press_all(&mut view, &peers, &typed("1.0.1x"));
        press_all(&mut view, &peers, &[Key::Backspace, Key::Enter]);
        assert_eq!((view.filter(), view.front()), ("1.0.1", &Front::Nothing));
        assert_eq!(view.shown(&peers).len(), 4);
        for (text, count) in [
            ("ib1", 6),
            ("failed", 1),
            ("fe80::c", 1),
            ("", 12),
            ("q", 0),
        ] {
            assert_eq!(
                View::new(Sort::Peer, text).shown(&peers).len(),
                count,
                "{text}"
            );
        }
        press_all(&mut view, &peers, &[Key::Char('\\'), Key::Escape]);
        assert_eq!((view.filter(), view.front()), ("", &Front::Nothing));
    }

    #[test]
    fn a_search_selects() {
        let peers = peers(12);
        let mut view = view();
        press_all(&mut view, &peers, &[Key::Char('/')]);
        press_all(&mut view, &peers, &typed("1.0.1"));
        assert_eq!(selected(&view, &peers), Some(1));
        press_all(&mut view, &peers, &[Key::Function(3)]);
        assert_eq!(selected(&view, &peers), Some(10));
        for _ in 0..3 {
            press_all(&mut view, &peers, &[Key::Function(3)]);
        }
        assert_eq!(selected(&view, &peers), Some(1));
        press_all(&mut view, &peers, &typed("qq"));
        assert_eq!(selected(&view, &peers), Some(1));
        assert_eq!(view.front(), &Front::Search("1.0.1qq".into()));
        press_all(&mut view, &peers, &[Key::Enter]);
        assert_eq!(view.front(), &Front::Nothing);
    }

    #[test]
    fn a_menu_sorts() {
        let peers = peers(3);
        let mut view = view();
        press_all(&mut view, &peers, &[Key::Char('I'), Key::Function(6)]);
        assert_eq!(view.front(), &Front::Sort(0));
        press_all(&mut view, &peers, &[Key::Down, Key::Down, Key::Enter]);
        assert_eq!((view.sort(), view.is_inverted()), (Sort::State, false));
        press_all(
            &mut view,
            &peers,
            &[Key::Char('>'), Key::End, Key::Down, Key::Escape],
        );
        assert_eq!((view.sort(), view.front()), (Sort::State, &Front::Nothing));
        press_all(&mut view, &peers, &[Key::Char('P')]);
        assert_eq!(view.sort(), Sort::Traffic);
        press_all(&mut view, &peers, &[Key::Char('T')]);
        assert_eq!(view.sort(), Sort::RxBits);
    }

    #[test]
    fn some_keys_are_for_the_caller() {
        let peers = peers(3);
        let mut view = view();
        for (key, action) in [
            (Key::Char('q'), Action::Quit),
            (Key::Function(10), Action::Quit),
            (Key::Ctrl('c'), Action::Quit),
            (Key::Ctrl('l'), Action::Redraw),
            (Key::Ctrl('z'), Action::Suspend),
            (Key::Enter, Action::None),
        ] {
            assert_eq!(view.press(key, &peers), action, "{key:?}");
        }
        press_all(&mut view, &peers, &[Key::Down]);
        let way = view.press(Key::Enter, &peers);
        assert_eq!(way, Action::Way(Some(IpAddr::from([10, 1, 0, 1]))));
        // Text may have a q; any key leaves the help.
        press_all(
            &mut view,
            &peers,
            &[Key::Function(3), Key::Char('q'), Key::Escape],
        );
        press_all(&mut view, &peers, &[Key::Char('h'), Key::Char('q')]);
        assert_eq!(view.front(), &Front::Nothing);
        press_all(&mut view, &peers, &[Key::Char('Z')]);
        assert!(view.is_paused());
    }
}
