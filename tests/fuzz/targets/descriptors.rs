//! Descriptors: the tree of a domain finds the rule that comparing every rule finds, and two descriptors of one rule are
//! counted together where all their values are the same, and only there.

#![no_main]

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use limit::{Charge, Key};
use policy::counting::shorthand;
use policy::definition::{Dimension, PolicyDefinition};
use policy::matching::domain::definition::{
    DomainDefinition, EntryMatch, RuleDefinition, ValueMatch, VerdictDefinition,
};
use policy::matching::domain::{DescriptorEntry, DescriptorMatch, DescriptorSubject};
use policy::{CompileOptions, RouteTable};
use smallvec::SmallVec;

#[derive(Arbitrary, Debug)]
struct Input {
    rules: Vec<Vec<(Name, Wanted)>>,
    asked: Vec<Vec<(Name, Text)>>,
}

/// Few keys, so that they meet.
#[derive(Arbitrary, Clone, Copy, Debug, PartialEq)]
enum Name {
    A,
    B,
    Comma,
}

#[derive(Arbitrary, Debug)]
enum Wanted {
    Exact(Text),
    Prefix(Text),
    Any,
}

/// Short texts that are like each other, or anything at all.
#[derive(Arbitrary, Debug)]
enum Text {
    Like(Vec<Piece>),
    Odd(String),
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Piece {
    X,
    Y,
    Comma,
    Backslash,
    Nul,
    Accent,
}

/// The keys and values of a descriptor.
type Values<'k> = [(&'k str, String)];

fuzz_target!(|input: Input| {
    if input.rules.len() > 16 || input.asked.len() > 16 || input.rules.iter().any(|rule| rule.len() > 6) {
        return;
    }
    let rules: Vec<RuleDefinition> =
        input.rules.iter().enumerate().map(|(index, wanted)| rule(index, wanted)).collect();
    let policies: Vec<PolicyDefinition> =
        rules.iter().enumerate().map(|(index, rule)| policy(index, rule)).collect();
    let domain = DomainDefinition { name: "d".to_owned(), overrides: false, rules: rules.clone() };
    let options = CompileOptions { salt: [0; 16], ipv6_prefix: 64, upstreams: &[], auth: &[] };
    // Two rules for the same descriptors, or one without entries, do not compile; that is for others to test.
    let Ok(table) = RouteTable::with_domains(&[], &policies, &[domain], &options) else { return };
    let domain = table.domain("d").expect("it was compiled");
    let asked: Vec<Vec<(&str, String)>> = input
        .asked
        .iter()
        .map(|asked| asked.iter().map(|(key, value)| (key_of(*key), text(value))).collect())
        .collect();
    let mut met: Vec<(usize, &Values<'_>, Key)> = Vec::new();
    for descriptor in &asked {
        let entries: Vec<DescriptorEntry<'_>> =
            descriptor.iter().map(|(key, value)| DescriptorEntry { key, value }).collect();
        let found = match domain.find(&entries) {
            DescriptorMatch::Limited(rule) => {
                let mut charges: SmallVec<[Charge; 4]> = SmallVec::new();
                let subject = DescriptorSubject::new(rule, &entries, None);
                table.chosen_by(rule).charges(&subject, &mut charges).expect("nothing is missing");
                met.push((rule.id().index(), descriptor, charges[0].key));
                Some(rule.id().index())
            }
            DescriptorMatch::Unknown => None,
            other => panic!("no rule says {other:?}"),
        };
        assert_eq!(found, naive(&rules, &entries), "{entries:?}");
    }
    for (rule, values, key) in &met {
        for (other, their_values, their_key) in &met {
            assert_eq!(
                rule == other && values == their_values,
                key == their_key,
                "{values:?} {their_values:?}"
            );
        }
    }
});

/// The rule, told from the rules alone: of what fits an entry the most specific, and nothing else after it.
fn naive(rules: &[RuleDefinition], entries: &[DescriptorEntry<'_>]) -> Option<usize> {
    let mut left: Vec<usize> = (0..rules.len()).collect();
    for (level, entry) in entries.iter().enumerate() {
        let rank = |value: &ValueMatch| match value {
            ValueMatch::Exact(text) => (text == entry.value).then_some(usize::MAX),
            ValueMatch::Prefix(prefix) => {
                entry.value.starts_with(prefix.as_str()).then_some(prefix.len() + 1)
            }
            ValueMatch::Any => Some(0),
        };
        let own =
            left.iter().filter_map(|rule| rules[*rule].entries.get(level)).filter(|it| it.key == entry.key);
        let best = own.filter(|it| rank(&it.value).is_some()).max_by_key(|it| rank(&it.value))?.clone();
        left.retain(|rule| rules[*rule].entries.get(level) == Some(&best));
    }
    left.into_iter().find(|rule| rules[*rule].entries.len() == entries.len())
}

fn rule(index: usize, wanted: &[(Name, Wanted)]) -> RuleDefinition {
    let entry = |(key, wanted): &(Name, Wanted)| {
        let value = match wanted {
            Wanted::Exact(value) => ValueMatch::Exact(text(value)),
            // A beginning of nothing is any value, which has a name of its own.
            Wanted::Prefix(prefix) if text(prefix).is_empty() => ValueMatch::Any,
            Wanted::Prefix(prefix) => ValueMatch::Prefix(text(prefix)),
            Wanted::Any => ValueMatch::Any,
        };
        EntryMatch { key: key_of(*key).to_owned(), value }
    };
    RuleDefinition {
        name: None,
        instead_of: Vec::new(),
        entries: wanted.iter().map(entry).collect(),
        is_ordered: true,
        given: Vec::new(),
        verdict: VerdictDefinition::Limited(vec![format!("p{index}")]),
    }
}

/// A policy of the rule's own, by each of its keys.
fn policy(index: usize, rule: &RuleDefinition) -> PolicyDefinition {
    let window = shorthand::parse("9/m").expect("a limit").window;
    let mut by: Vec<Dimension> = Vec::new();
    for entry in &rule.entries {
        let dimension = Dimension::Entry(entry.key.clone());
        if !by.contains(&dimension) {
            by.push(dimension);
        }
    }
    PolicyDefinition { by, ..PolicyDefinition::new(format!("p{index}"), vec![window]) }
}

fn key_of(name: Name) -> &'static str {
    match name {
        Name::A => "a",
        Name::B => "b",
        Name::Comma => ",",
    }
}

fn text(text: &Text) -> String {
    let pieces = match text {
        Text::Odd(text) => return text.clone(),
        Text::Like(pieces) => pieces,
    };
    let one = |piece: &Piece| match piece {
        Piece::X => 'x',
        Piece::Y => 'y',
        Piece::Comma => ',',
        Piece::Backslash => '\\',
        Piece::Nul => '\0',
        Piece::Accent => 'é',
    };
    pieces.iter().map(one).collect()
}
