//! `oncewire man`: the manual page, made from the command line's own description.

use clap::CommandFactory as _;
use clap_mangen::Man;

use crate::cli::Cli;

/// Writes the manual page in roff.
pub(super) fn page() -> anyhow::Result<String> {
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
.SH SEE ALSO
docs/reference/configuration.md on the configuration, docs/reference/json.md on what \\fB\\-\\-json\\fR prints.
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_of_the_help_has_its_section() {
        let page = page().unwrap();
        assert!(page.contains(".TH oncewire"), "{page}");
        for sub in Cli::command().get_subcommands().filter(|sub| !sub.is_hide_set() && !sub.has_subcommands())
        {
            assert!(page.contains(&format!(".SS {}\n", sub.get_name())), "{}", sub.get_name());
        }
        assert!(page.contains(".SS cache clear\n") && page.contains("\\fB\\-\\-peer\\fR"), "{page}");
        assert!(page.contains("EXIT STATUS"));
    }

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }
}
