//! The workloads of a client.

use crate::services::{GIT_PORT, HTTP_PORT, OBJECTS, POSTGRES_PORT, SSH_PORT};

/// One workload of a client.
pub(crate) struct Workload {
    pub(crate) name: &'static str,
    /// A line of shell; `$SERVER` is the server's address, `$KEYS` the directory with the keys, and the working directory an
    /// empty one.
    pub(crate) line: String,
}

/// All workloads, in the order of the table.
pub(crate) fn all() -> Vec<Workload> {
    let of = |name, line| Workload { name, line };
    let ssh = format!(
        "ssh -p {SSH_PORT} -i $KEYS/user -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"
    );
    vec![
        of("curl, a file of 4 MB", format!("curl -sSf -o file http://$SERVER:{HTTP_PORT}/file")),
        of(
            "curl, a page of 100 objects, 6 at a time",
            format!(
                "curl -sSf --parallel --parallel-max 6 -o '#1' \"http://$SERVER:{HTTP_PORT}/objects/[1-{OBJECTS}]\""
            ),
        ),
        of("git clone", format!("git clone -q git://$SERVER:{GIT_PORT}/repository copy")),
        of("rsync over ssh", format!("rsync -a -e \"{ssh}\" $SERVER:$CONTENT/tree .")),
        of(
            "PostgreSQL, COPY of 60,000 rows",
            format!(
                "psql -X -q -h $SERVER -p {POSTGRES_PORT} -U postgres -d postgres -c 'COPY t TO STDOUT' > rows"
            ),
        ),
    ]
}
