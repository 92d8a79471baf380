//! The tree that a domain's rules make: a level for each entry of a descriptor.
//!
//! Of the branches of one level that fit an entry the most specific is taken: the exact value, then the longest
//! prefix, then any value. There is no way back: if the branch leads to no rule, no less specific one is tried, so
//! that a descriptor costs one look-up for each of its entries, whatever rules there are.

use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;

use super::definition::{DescriptorEntry, EntryMatch, RuleId, ValueMatch};

/// Rules by the entries of descriptors.
#[derive(Clone, Debug)]
pub struct DomainTree {
    nodes: Vec<DomainNode>,
    /// The most entries that a rule has.
    depth: usize,
}

/// What is known once the entries up to here have matched.
#[derive(Clone, Debug, Default)]
struct DomainNode {
    /// By the key of the next entry.
    branches: HashMap<Box<str>, Branches>,
    rule: Option<RuleId>,
}

/// Where an entry of one key leads, by its value.
#[derive(Clone, Debug, Default)]
struct Branches {
    exact: HashMap<Box<str>, NodeId>,
    prefixes: Prefixes,
    any: Option<NodeId>,
}

type NodeId = usize;

/// Prefixes, of which the longest is found.
#[derive(Clone, Debug, Default)]
struct Prefixes {
    /// Sorted by prefix once the tree is whole.
    sorted: Vec<DomainPrefix>,
}

#[derive(Clone, Debug)]
struct DomainPrefix {
    text: Box<str>,
    node: NodeId,
    /// The longest of the others that this one begins with.
    shorter: Option<usize>,
}

impl DomainTree {
    pub fn new() -> DomainTree {
        DomainTree { nodes: vec![DomainNode::default()], depth: 0 }
    }

    /// Adds a rule for these entries, in this order.
    ///
    /// # Errors
    /// The rule that is there already.
    pub fn insert<'m>(
        &mut self,
        entries: impl IntoIterator<Item = &'m EntryMatch>,
        rule: RuleId,
    ) -> Result<(), RuleId> {
        let (mut at, mut depth) = (0, 0);
        for entry in entries {
            at = self.child(at, entry);
            depth += 1;
        }
        if let Some(other) = self.nodes[at].rule {
            return Err(other);
        }
        self.nodes[at].rule = Some(rule);
        self.depth = self.depth.max(depth);
        Ok(())
    }

    /// Makes it ready to be walked. No rule may be added after this.
    pub fn finish(&mut self) {
        for branches in self.nodes.iter_mut().flat_map(|node| node.branches.values_mut()) {
            branches.prefixes.finish();
        }
    }

    pub fn find(&self, entries: &[DescriptorEntry<'_>]) -> Option<RuleId> {
        // Not walked, because a descriptor with more entries than any rule has meets none.
        if entries.len() > self.depth {
            return None;
        }
        let mut node = self.nodes.first()?;
        for entry in entries {
            let branches = node.branches.get(entry.key)?;
            node = &self.nodes[branches.find(entry.value)?];
        }
        node.rule
    }

    fn child(&mut self, at: NodeId, entry: &EntryMatch) -> NodeId {
        let next = self.nodes.len();
        let branches = self.nodes[at].branches.entry(entry.key.as_str().into()).or_default();
        let child = match &entry.value {
            ValueMatch::Exact(value) => match branches.exact.entry(value.as_str().into()) {
                Slot::Occupied(known) => *known.get(),
                Slot::Vacant(free) => *free.insert(next),
            },
            ValueMatch::Prefix(prefix) => branches.prefixes.insert(prefix, next),
            ValueMatch::Any => *branches.any.get_or_insert(next),
        };
        if child == next {
            self.nodes.push(DomainNode::default());
        }
        child
    }
}

impl Branches {
    fn find(&self, value: &str) -> Option<NodeId> {
        self.exact.get(value).copied().or_else(|| self.prefixes.longest_of(value)).or(self.any)
    }
}

impl Prefixes {
    /// Where a prefix leads: to what it leads already, or to `next`. Kept sorted, so that many are inserted soon.
    fn insert(&mut self, prefix: &str, next: NodeId) -> NodeId {
        match self.sorted.binary_search_by(|known| (*known.text).cmp(prefix)) {
            Ok(known) => self.sorted[known].node,
            Err(place) => {
                let prefix = DomainPrefix { text: prefix.into(), node: next, shorter: None };
                self.sorted.insert(place, prefix);
                next
            }
        }
    }

    fn finish(&mut self) {
        // Those that what comes next may begin with, each beginning with the one before it.
        let mut open: Vec<usize> = Vec::new();
        for index in 0..self.sorted.len() {
            while open
                .last()
                .is_some_and(|last| !self.sorted[index].text.starts_with(&*self.sorted[*last].text))
            {
                open.pop();
            }
            self.sorted[index].shorter = open.last().copied();
            open.push(index);
        }
    }

    /// Where the longest prefix of a value leads. What sorts between a prefix of the value and the value begins with that
    /// prefix, too: so the last one before the value, or one that it begins with, is the longest.
    fn longest_of(&self, value: &str) -> Option<NodeId> {
        let after = self.sorted.partition_point(|known| *known.text <= *value);
        let mut at = after.checked_sub(1)?;
        loop {
            let prefix = &self.sorted[at];
            if value.starts_with(&*prefix.text) {
                return Some(prefix.node);
            }
            at = prefix.shorter?;
        }
    }
}
