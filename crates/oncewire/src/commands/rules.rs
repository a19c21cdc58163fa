//! `oncewire rules`: what leads connections to a gateway.

use oncewire_gateway::config::Config;
use oncewire_gateway::rules::{Programs, RuleSet};

use crate::cli::Rules;

/// Prints the rules that a configuration needs and those that are loaded, or removes these.
pub(super) fn run(args: &Rules) -> anyhow::Result<()> {
    let config = Config::load(&args.config)?;
    let Some(rules) = RuleSet::of(&config) else {
        return super::print(
            "# no rules: this configuration takes in no connections that were made to others\n",
        );
    };
    let programs = Programs(&rules);
    if args.remove {
        let removed = programs.remove()?;
        let table = rules.table();
        return super::print(&match removed {
            true => format!("removed table inet {table} and its routes\n"),
            false => format!("there is no table inet {table}\n"),
        });
    }
    if args.installed {
        return super::print(&programs.installed()?.unwrap_or_else(|| "# not installed\n".to_owned()));
    }
    super::print(&(excluded(&config, &rules) + &describe(&rules)))
}

/// Says which policies the rules carry out by themselves, as comments for a shell.
fn excluded(config: &Config, rules: &RuleSet) -> String {
    let line = |(policy, conditions): (usize, &str)| {
        let line = config.policy_lines.get(policy.saturating_sub(1)).copied().unwrap_or_default();
        format!("# policy {policy} ({}, line {line}): {conditions} passes by\n", config.path.display())
    };
    rules.bypasses().into_iter().map(line).collect()
}

/// Writes the rules so that a shell can load them.
fn describe(rules: &RuleSet) -> String {
    let lines = |commands: Vec<String>| commands.iter().map(|c| format!("ip {c}\n")).collect::<String>();
    format!("nft -f - <<'END'\n{}END\n{}", rules.nft(), lines(rules.routes()))
}
