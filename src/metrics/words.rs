//! Declares a closed set that is counted and written: its values, and the word for each.

/// An enum whose values have words: `Name: "word"`. `ALL` has them in declaration order, which is the index of a value's
/// counter. Words never change, because operators' dashboards depend on them.
#[macro_export]
macro_rules! words {
    ($(#[$about:meta])* pub enum $name:ident { $($(#[$of_value:meta])* $value:ident: $word:literal,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name {
            $($(#[$of_value])* $value,)*
        }

        impl $name {
            /// Every value, in declaration order, which is the index of its counter.
            pub const ALL: [$name; [$($word),*].len()] = [$($name::$value),*];

            /// The word in metrics, logs and answers.
            pub const fn word(self) -> &'static str {
                match self {
                    $($name::$value => $word,)*
                }
            }
        }
    };
}
