//! `oncewire man`: manual pages of the commands and of the configuration.

use clap::CommandFactory as _;
use clap_mangen::Man;

use super::roff;
use crate::cli::{Cli, Manual};

/// Writes a manual page in roff.
pub(super) fn page(manual: Manual) -> anyhow::Result<String> {
    match manual {
        Manual::Oncewire => commands(),
        Manual::Configuration => Ok(configuration()),
    }
}

/// oncewire.toml(5), from the configuration reference.
fn configuration() -> String {
    let (_, text) = CONFIGURATION.split_once("\n\n").unwrap_or_default();
    let version = env!("CARGO_PKG_VERSION");
    format!(
        ".TH oncewire.toml 5 \"\" \"oncewire {version}\"\n.SH NAME\noncewire.toml \\- configuration of a gateway\n\
         .SH DESCRIPTION\n{}{CONFIGURATION_CLOSING}",
        roff::from_markdown(text)
    )
}

/// oncewire(1), from the command line's description.
fn commands() -> anyhow::Result<String> {
    let mut command = Cli::command();
    command.build();
    let mut page = Vec::new();
    let root = Man::new(command.clone());
    root.render_title(&mut page)?;
    root.render_name_section(&mut page)?;
    root.render_synopsis_section(&mut page)?;
    root.render_description_section(&mut page)?;
    root.render_options_section(&mut page)?;
    let mut text = String::from_utf8(page)?;
    text.push_str(".SH COMMANDS\n");
    for sub in visible(&command) {
        match sub.has_subcommands() {
            true => {
                for verb in visible(sub) {
                    text.push_str(&section(&format!("{} {}", sub.get_name(), verb.get_name()), verb)?);
                }
            }
            false => text.push_str(&section(sub.get_name(), sub)?),
        }
    }
    text.push_str(CLOSING);
    Ok(text)
}

fn visible(command: &clap::Command) -> impl Iterator<Item = &clap::Command> {
    command.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help")
}

/// Writes a command's part: its sections become paragraphs below one heading.
fn section(name: &str, command: &clap::Command) -> anyhow::Result<String> {
    let own = command.clone().mut_args(|arg| if arg.is_global_set() { arg.hide(true) } else { arg });
    let man = Man::new(own);
    let mut part = Vec::new();
    man.render_synopsis_section(&mut part)?;
    part.extend_from_slice(b".PP\n");
    man.render_description_section(&mut part)?;
    man.render_options_section(&mut part)?;
    let part = String::from_utf8(part)?;
    let lines = part
        .lines()
        .filter(|line| !line.starts_with(".SH ") && !line.starts_with(".ie") && !line.starts_with(".el"));
    let body: Vec<&str> = lines.collect();
    Ok(format!(".SS {name}\n{}\n", body.join("\n")))
}

const CONFIGURATION: &str = include_str!("../../../../docs/reference/configuration.md");

const CONFIGURATION_CLOSING: &str = "\
.SH FILES
.TP
\\fB/etc/oncewire/oncewire.toml\\fR
The configuration of the packaged service.
.TP
\\fB/usr/share/doc/oncewire/using/recipes.md\\fR
Whole files for each way in.
.SH SEE ALSO
\\fBoncewire\\fR(1); \\fBoncewire check\\fR explains a file and its faults.
";

const CLOSING: &str = "\
.SH EXIT STATUS
.TP
0
Done.
.TP
1
Failed.
.TP
2
Wrong usage or configuration.
.SH FILES
.TP
\\fB/etc/oncewire/oncewire.toml\\fR
The configuration of the packaged service.
.TP
\\fB/var/lib/oncewire\\fR
Its logs, hints and chunk store.
.TP
\\fB/usr/share/doc/oncewire\\fR
Documents: recipes, operating, configuration, JSON, wire format.
.SH EXAMPLES
.TP
Two gateways and an emulated slow link, on this machine:
\\fBoncewire demo\\fR
.TP
Savings on files, the second time included:
\\fBoncewire measure backup.tar backup.tar\\fR
.TP
A key, a check, a start:
\\fBoncewire keygen \\-\\-out branch.key; oncewire check \\-c branch.toml; oncewire run \\-c branch.toml\\fR
.TP
Peers, savings by destination, open flows:
\\fBoncewire status \\-c branch.toml; oncewire status \\-c branch.toml \\-\\-destinations; oncewire flows \\-c branch.toml\\fR
.TP
The rules of tproxy and redirect, printed and removed:
\\fBoncewire rules \\-c branch.toml; oncewire rules \\-c branch.toml \\-\\-remove\\fR
.TP
Everything remembered, forgotten:
\\fBoncewire cache clear \\-c branch.toml\\fR
.SH SEE ALSO
\\fBoncewire.toml\\fR(5) on the configuration; reference/json.md of the documents on the output of \\fB\\-\\-json\\fR.
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_of_the_help_has_its_section() {
        let page = page(Manual::Oncewire).unwrap();
        assert!(page.contains(".TH oncewire"), "{page}");
        for sub in Cli::command().get_subcommands().filter(|sub| !sub.is_hide_set() && !sub.has_subcommands())
        {
            assert!(page.contains(&format!(".SS {}\n", sub.get_name())), "{}", sub.get_name());
        }
        assert!(page.contains(".SS cache clear\n") && page.contains("\\fB\\-\\-peer\\fR"), "{page}");
        assert!(
            ["EXIT STATUS", "FILES", "EXAMPLES"].iter().all(|part| page.contains(&format!(".SH {part}\n")))
        );
    }

    #[test]
    fn configuration_page_has_keys_without_markup() {
        let page = page(Manual::Configuration).unwrap();
        assert!(page.contains(".TH oncewire.toml 5") && page.contains(".SH \"[link]: lanes\"\n"), "{page}");
        for key in ["key_file", "public_key", "mode", "path", "log_memory", "rate_limit", "shed"] {
            assert!(page.contains(&format!(".TP\n\\fB\\fB{key}")), "{key}");
        }
        let left = page
            .lines()
            .find(|line| ["**", "](", "|--", "```", "## "].iter().any(|mark| line.contains(mark)));
        assert_eq!(left, None);
    }

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }
}
