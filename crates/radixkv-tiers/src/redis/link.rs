//! One connection to a server, or to the nodes of a cluster.

use std::time::{Duration, Instant};

use redis::{Cmd, Connection, ErrorKind, RedisError, Value};

/// The server or the cluster to connect to.
#[derive(Clone)]
pub(super) enum Address {
    Server(redis::Client),
    #[cfg(feature = "redis-cluster")]
    Cluster(redis::cluster::ClusterClient),
}

/// A connection.
pub(super) enum Link {
    Server {
        connection: Box<Connection>,
        exchanges: u64,
    },
    #[cfg(feature = "redis-cluster")]
    Cluster(Box<redis::cluster::ClusterConnection>),
}

impl Address {
    pub(super) fn connect(&self, timeout: Duration) -> Result<Link, RedisError> {
        match self {
            Self::Server(client) => {
                let connection = client.get_connection_with_timeout(timeout)?;
                connection.set_write_timeout(Some(timeout))?;
                Ok(Link::Server { connection: Box::new(connection), exchanges: 0 })
            }
            #[cfg(feature = "redis-cluster")]
            Self::Cluster(client) => {
                let config =
                    redis::cluster::ClusterConfig::new().set_connection_timeout(timeout).set_response_timeout(timeout);
                Ok(Link::Cluster(Box::new(client.get_connection_with_config(config)?)))
            }
        }
    }
}

impl Link {
    /// Sends commands and passes the replies to `each` in their order. Ends at the first reply that
    /// does not arrive or that `each` refuses.
    ///
    /// A server first echoes a number that is different for each exchange: this detects a surplus
    /// reply of an earlier one. In a cluster the crate `redis` talks to each node.
    ///
    /// After an error, replies that still arrive belong to no request: the connection must not be
    /// used again.
    pub(super) fn exchange(
        &mut self,
        commands: &[Cmd],
        timeout: Duration,
        each: &mut dyn FnMut(Value) -> bool,
    ) -> Result<(), RedisError> {
        match self {
            Self::Server { connection, exchanges } => {
                let due = Instant::now() + timeout;
                *exchanges += 1;
                let number = format!("radixkv {exchanges}");
                let echo = redis::cmd("ECHO").arg(&number).take();
                let all = std::iter::once(&echo).chain(commands);
                connection.send_packed_command(&all.flat_map(Cmd::get_packed_command).collect::<Vec<u8>>())?;
                let mut receive = || {
                    let left = due.saturating_duration_since(Instant::now());
                    // A timeout of zero would mean no timeout.
                    connection.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
                    connection.recv_response()
                };
                match receive()? {
                    Value::BulkString(said) if said == number.as_bytes() => {}
                    Value::ServerError(error) => return Err(error.into()),
                    _ => return Err((ErrorKind::UnexpectedReturnType, "a reply of another request").into()),
                }
                for _ in commands {
                    if !each(receive()?) {
                        break;
                    }
                }
            }
            #[cfg(feature = "redis-cluster")]
            Self::Cluster(connection) => {
                let mut pipeline = redis::cluster::cluster_pipe();
                for command in commands {
                    pipeline.add_command(command.clone());
                }
                let replies: Vec<Value> = pipeline.query(connection)?;
                replies.into_iter().all(each);
            }
        }
        Ok(())
    }
}
