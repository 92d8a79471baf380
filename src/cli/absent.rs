//! Stands for the commands whose feature this binary was built without: takes any arguments, and names the feature.

use std::ffi::OsString;

/// Whatever follows the command.
#[derive(Debug, clap::Args)]
#[command(hide = true, disable_help_flag = true)]
pub(super) struct Arguments {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    _ignored: Vec<OsString>,
}

macro_rules! absent {
    ($($command:ident $feature:literal)*) => {$(
        #[cfg(not(feature = $feature))]
        pub(super) mod $command {
            use std::io::Write;
            use std::path::Path;

            pub(crate) use super::Arguments;

            pub(crate) fn run(
                _: &Arguments,
                _: &Path,
                _: &mut dyn Write,
                _: &mut dyn Write,
            ) -> anyhow::Result<u8> {
                anyhow::bail!(
                    "`{}` needs the feature `{}`, which this binary was built without",
                    stringify!($command),
                    $feature
                )
            }
        }
    )*};
}

absent! {
    ctl "control"
    migrate "migrate"
    replay "replay"
    suggest "replay"
    top "top"
    why "control"
}
