//! What holds at a place of nginx.conf: the directives of its block and of those around it.

use super::super::notes::SourceLine;
use super::lexer::Directive;

/// What a map gives its variable for some requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MapChoice {
    pub(super) variable: String,
    /// `None`: no route can say for which requests it is.
    pub(super) value: Option<String>,
    pub(super) place: SourceLine,
    /// The line that decides.
    pub(super) what: String,
}

/// The blocks around a place, the outermost first, and what is true of all of it.
#[derive(Clone)]
pub(super) struct Scope<'d> {
    blocks: Vec<&'d [Directive]>,
    /// What maps give here.
    choices: Vec<MapChoice>,
}

impl<'d> Scope<'d> {
    pub(super) fn new(block: &'d [Directive]) -> Scope<'d> {
        Scope { blocks: vec![block], choices: Vec::new() }
    }

    /// The same with one more block inside.
    pub(super) fn within(&self, block: &'d [Directive]) -> Scope<'d> {
        let mut inner = self.clone();
        inner.blocks.push(block);
        inner
    }

    /// The same for the requests that maps give this for.
    pub(super) fn choosing(&self, choices: Vec<MapChoice>) -> Scope<'d> {
        let mut chosen = self.clone();
        chosen.choices.extend(choices);
        chosen
    }

    /// What a map gives a variable here.
    pub(super) fn choice(&self, variable: &str) -> Option<&MapChoice> {
        self.choices.iter().rfind(|choice| choice.variable == variable)
    }

    /// The directive of the innermost block that has one of this name; within it, the last.
    pub(super) fn last(&self, name: &str) -> Option<&'d Directive> {
        self.all(name).pop()
    }

    /// The last directive that is one of these, of the innermost block that has any.
    pub(super) fn last_of(&self, is_it: impl Fn(&Directive) -> bool) -> Option<&'d Directive> {
        self.blocks.iter().rev().find_map(|block| block.iter().rfind(|inside| is_it(inside)))
    }

    /// All directives of this name in the innermost block that has any: those of outer blocks do not hold then.
    pub(super) fn all(&self, name: &str) -> Vec<&'d Directive> {
        let blocks = self.blocks.iter().rev();
        let mut found = blocks.map(|block| named(block, name)).filter(|found| !found.is_empty());
        found.next().unwrap_or_default()
    }

    /// All directives of this name in all blocks, for those that inner ones do not replace.
    pub(super) fn every(&self, name: &str) -> Vec<&'d Directive> {
        self.blocks.iter().flat_map(|block| named(block, name)).collect()
    }

    /// Directives of the innermost block alone.
    pub(super) fn own(&self, name: &str) -> Vec<&'d Directive> {
        self.blocks.last().map(|block| named(block, name)).unwrap_or_default()
    }

    /// `allow` and `deny` of the innermost block that has any, in their order.
    pub(super) fn rules(&self) -> Vec<&'d Directive> {
        let rules = |block: &&'d [Directive]| -> Vec<&'d Directive> {
            block.iter().filter(|directive| matches!(directive.name.as_str(), "allow" | "deny")).collect()
        };
        let mut found = self.blocks.iter().rev().map(rules).filter(|found| !found.is_empty());
        found.next().unwrap_or_default()
    }

    /// The first argument of [`Scope::last`].
    pub(super) fn word(&self, name: &str) -> Option<&'d str> {
        self.last(name).map(|found| found.taken().arg(0))
    }

    pub(super) fn is_on(&self, name: &str) -> bool {
        self.word(name) == Some("on")
    }
}

fn named<'d>(block: &'d [Directive], name: &str) -> Vec<&'d Directive> {
    block.iter().filter(|directive| directive.name == name).collect()
}
