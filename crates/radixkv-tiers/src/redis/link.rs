//! One connection: to a server, or to the nodes of a cluster.

use std::time::{Duration, Instant};

use redis::{Cmd, Connection, RedisError, Value};

/// Where connections are made to.
#[derive(Clone)]
pub(super) enum Address {
    Server(redis::Client),
    #[cfg(feature = "redis-cluster")]
    Cluster(redis::cluster::ClusterClient),
}

/// A connection.
pub(super) enum Link {
    Server(Box<Connection>),
    #[cfg(feature = "redis-cluster")]
    Cluster(Box<redis::cluster::ClusterConnection>),
}

impl Address {
    pub(super) fn connect(&self, timeout: Duration) -> Result<Link, RedisError> {
        match self {
            Self::Server(client) => {
                let connection = client.get_connection_with_timeout(timeout)?;
                connection.set_write_timeout(Some(timeout))?;
                Ok(Link::Server(Box::new(connection)))
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
    /// Sends commands and hands out replies in their order; ends at the first that does not come, or that `each` refuses.
    ///
    /// After an error what may still come belongs to no request: the connection is of no use any more.
    pub(super) fn exchange(
        &mut self,
        commands: &[Cmd],
        timeout: Duration,
        each: &mut dyn FnMut(Value) -> bool,
    ) -> Result<(), RedisError> {
        match self {
            Self::Server(connection) => {
                let due = Instant::now() + timeout;
                let bytes: Vec<u8> = commands.iter().flat_map(Cmd::get_packed_command).collect();
                connection.send_packed_command(&bytes)?;
                for _ in commands {
                    let left = due.saturating_duration_since(Instant::now());
                    // A timeout of zero would be none.
                    connection.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
                    if !each(connection.recv_response()?) {
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
