//! A tree of path segments: which routes may answer a path, the most specific first.
//!
//! Every pattern is one way from a root to a node, so a walk meets each node at most once: it visits at most
//! min(nodes of its root, 2^depth) of them, in a loop without recursion, and looks at no more segments than
//! the longest pattern has ([`SEGMENTS_MAX`](crate::matching::pattern::SEGMENTS_MAX)). A path of 4,000 segments costs
//! no more than one of 64. It knows paths only; methods and headers are the visitor's, which is why a walk
//! goes on until the visitor is content.
//!
//! Because cache misses and not comparisons take the time with 10,000 routes, nodes are small and lie in the order
//! they were made (those of one route beside each other), and all literal children are in one table.

use std::num::NonZeroU32;

use smallvec::SmallVec;

use crate::matching::literals::Literals;
use crate::matching::pattern::{FIRST, Pattern, PatternSegment, is_end, split};
use crate::route::RouteId;

/// The tree; each host has a root of its own in it, and node 0 is the root of any host.
#[derive(Clone, Debug)]
pub struct Tree {
    nodes: Vec<PathNode>,
    literals: Literals,
    begins: Vec<PrefixTexts>,
}

/// The texts before the rests of one node (`/service/1{*rest}`): a lookup for each length that there is.
#[derive(Clone, Debug)]
struct PrefixTexts {
    /// The node whose literal children they are; no walk comes there.
    node: u32,
    /// The shortest first.
    lengths: SmallVec<[usize; 4]>,
}

#[derive(Clone, Debug, Default)]
struct PathNode {
    param: Option<NonZeroU32>,
    rest: Option<NonZeroU32>,
    /// The place of its plain prefixes in [`Tree::begins`], and one more.
    begins: Option<NonZeroU32>,
    has_literals: bool,
    /// The routes whose pattern ends here.
    routes: SmallVec<[RouteId; 4]>,
}

/// The root of routes that answer to any host.
pub const ANY_HOST: u32 = 0;

/// A node still to be visited, and the place in the path it is to be visited with.
type Step = (u32, usize);

impl Default for Tree {
    fn default() -> Self {
        Tree { nodes: vec![PathNode::default()], literals: Literals::default(), begins: Vec::new() }
    }
}

impl Tree {
    pub fn plant(&mut self) -> NonZeroU32 {
        self.push()
    }

    pub fn insert(&mut self, root: u32, pattern: &Pattern, route: RouteId) {
        let mut node = root;
        for segment in pattern.segments() {
            node = self.child(node, segment);
        }
        self.nodes[node as usize].routes.push(route);
    }

    /// The routes of each place that has some: those that match exactly the same paths of one host.
    pub fn leaves(&mut self) -> impl Iterator<Item = &mut [RouteId]> {
        self.nodes.iter_mut().map(|node| &mut *node.routes).filter(|routes| !routes.is_empty())
    }

    /// Calls `visit` with the routes of each matching pattern under `root`, the most specific pattern first,
    /// until it returns something.
    pub fn walk<R>(
        &self,
        root: u32,
        path: &str,
        mut visit: impl FnMut(&[RouteId]) -> Option<R>,
    ) -> Option<R> {
        if !path.starts_with('/') {
            return None;
        }
        let mut left: SmallVec<[Step; 16]> = SmallVec::new();
        let mut next = Some((root, FIRST));
        while let Some((index, at)) = next {
            let node = &self.nodes[index as usize];
            // Visited as at the end of the path, because a rest takes all that is left.
            left.extend(node.rest.map(|rest| (rest.get(), path.len())));
            if is_end(path, at) {
                if !node.routes.is_empty()
                    && let Some(found) = visit(&node.routes)
                {
                    return Some(found);
                }
                next = left.pop();
                continue;
            }
            if node.param.is_none() && node.begins.is_none() && !node.has_literals {
                next = left.pop();
                continue;
            }
            let (segment, behind) = split(path, at);
            if !segment.is_empty() {
                left.extend(node.param.map(|param| (param.get(), behind)));
            }
            if let Some(begins) = node.begins {
                let begins = &self.begins[begins.get() as usize - 1];
                let found = begins.lengths.iter().filter_map(|&length| segment.get(..length));
                left.extend(
                    found.filter_map(|text| Some((self.literals.find(begins.node, text)?.get(), path.len()))),
                );
            }
            let literal = if node.has_literals { self.literals.find(index, segment) } else { None };
            next = literal.map(|literal| (literal.get(), behind)).or_else(|| left.pop());
        }
        None
    }

    fn child(&mut self, parent: u32, segment: &PatternSegment) -> u32 {
        let node = &self.nodes[parent as usize];
        let known = match segment {
            PatternSegment::Literal(text) => self.literals.find(parent, text),
            PatternSegment::Param(_) => node.param,
            PatternSegment::Rest { begin, .. } if begin.is_empty() => node.rest,
            PatternSegment::Rest { begin, .. } => {
                let begins = node.begins.map(|begins| self.begins[begins.get() as usize - 1].node);
                begins.and_then(|node| self.literals.find(node, begin))
            }
        };
        if let Some(child) = known {
            return child.get();
        }
        let child = self.push();
        let node = &mut self.nodes[parent as usize];
        match segment {
            PatternSegment::Literal(text) => {
                node.has_literals = true;
                self.literals.insert(parent, text, child);
            }
            PatternSegment::Param(_) => node.param = Some(child),
            PatternSegment::Rest { begin, .. } if begin.is_empty() => node.rest = Some(child),
            PatternSegment::Rest { begin, .. } => self.insert_begin(parent, begin, child),
        }
        child.get()
    }

    fn insert_begin(&mut self, parent: u32, text: &str, child: NonZeroU32) {
        let place = self.nodes[parent as usize].begins.unwrap_or_else(|| {
            let node = self.push().get();
            self.begins.push(PrefixTexts { node, lengths: SmallVec::new() });
            let place = u32::try_from(self.begins.len()).ok().and_then(NonZeroU32::new);
            place.expect("there are fewer than nodes, and one was added")
        });
        self.nodes[parent as usize].begins = Some(place);
        let begins = &mut self.begins[place.get() as usize - 1];
        if let Err(at) = begins.lengths.binary_search(&text.len()) {
            begins.lengths.insert(at, text.len());
        }
        self.literals.insert(begins.node, text, child);
    }

    fn push(&mut self) -> NonZeroU32 {
        let index = u32::try_from(self.nodes.len()).ok().and_then(NonZeroU32::new);
        let index = index.expect("node 0 is there from the start, and four billion nodes exceed any memory");
        self.nodes.push(PathNode::default());
        index
    }
}
