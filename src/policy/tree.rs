//! A tree of path segments: which routes may answer a path, the most specific first.
//!
//! Every pattern is one way from a root to a node, so a walk meets each node at most once: it visits at most
//! min(nodes of its root, 2^depth) of them, in a loop without recursion, and looks at no more segments than the
//! longest pattern has ([`SEGMENTS_MAX`](super::pattern::SEGMENTS_MAX)). A path of 4,000 segments costs no more
//! than one of 64. It knows paths only; methods and headers are the visitor's, which is why a walk goes on
//! until the visitor is content.

use std::collections::HashMap;

use smallvec::SmallVec;

use super::pattern::{FIRST, Pattern, Segment, is_end, split};

/// The tree; each host has a root of its own in it.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    nodes: Vec<Node>,
}

#[derive(Clone, Debug, Default)]
struct Node {
    literals: HashMap<Box<str>, u32>,
    /// Longest key of `literals`, bytes: a longer segment is not even hashed.
    literal_bytes_max: usize,
    param: Option<u32>,
    rest: Option<u32>,
    /// The routes whose pattern ends here.
    routes: Vec<u32>,
}

/// A node still to be visited, and the place in the path it is to be visited with.
type Step = (u32, usize);

impl Tree {
    /// A new root.
    pub fn plant(&mut self) -> u32 {
        self.push()
    }

    /// Adds a route under a root.
    pub fn insert(&mut self, root: u32, pattern: &Pattern, route: u32) {
        let mut node = root;
        for segment in pattern.segments() {
            node = self.child(node, segment);
        }
        self.nodes[node as usize].routes.push(route);
    }

    /// The routes of each place that has some: those that match exactly the same paths of one host.
    pub fn leaves(&mut self) -> impl Iterator<Item = &mut Vec<u32>> {
        self.nodes.iter_mut().map(|node| &mut node.routes).filter(|routes| !routes.is_empty())
    }

    /// Calls `visit` with the routes of each matching pattern under `root`, the most specific pattern first,
    /// until it returns something.
    pub fn walk<R>(&self, root: u32, path: &str, mut visit: impl FnMut(&[u32]) -> Option<R>) -> Option<R> {
        if !path.starts_with('/') {
            return None;
        }
        let mut left: SmallVec<[Step; 16]> = SmallVec::new();
        let mut next = Some((root, FIRST));
        while let Some((index, at)) = next {
            let node = &self.nodes[index as usize];
            // A rest takes all that is left, so its node is visited as at the end of the path.
            left.extend(node.rest.map(|rest| (rest, path.len())));
            if is_end(path, at) {
                if !node.routes.is_empty()
                    && let Some(found) = visit(&node.routes)
                {
                    return Some(found);
                }
                next = left.pop();
                continue;
            }
            let (segment, behind) = split(path, at);
            if !segment.is_empty() {
                left.extend(node.param.map(|param| (param, behind)));
            }
            let literal = match segment.len() <= node.literal_bytes_max {
                true => node.literals.get(segment).map(|&literal| (literal, behind)),
                false => None,
            };
            next = literal.or_else(|| left.pop());
        }
        None
    }

    fn child(&mut self, parent: u32, segment: &Segment) -> u32 {
        let node = &self.nodes[parent as usize];
        let known = match segment {
            Segment::Literal(text) => node.literals.get(text).copied(),
            Segment::Param(_) => node.param,
            Segment::Rest(_) => node.rest,
        };
        if let Some(child) = known {
            return child;
        }
        let child = self.push();
        let node = &mut self.nodes[parent as usize];
        match segment {
            Segment::Literal(text) => {
                node.literal_bytes_max = node.literal_bytes_max.max(text.len());
                node.literals.insert(text.clone(), child);
            }
            Segment::Param(_) => node.param = Some(child),
            Segment::Rest(_) => node.rest = Some(child),
        }
        child
    }

    fn push(&mut self) -> u32 {
        let index = u32::try_from(self.nodes.len()).expect("four billion nodes exceed any memory");
        self.nodes.push(Node::default());
        index
    }
}
