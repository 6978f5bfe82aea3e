-- Times are milliseconds since 1970 in UTC; 0 stands for unknown.
CREATE TABLE jobs (
	uid TEXT PRIMARY KEY,
	version BIGINT NOT NULL,
	kind TEXT NOT NULL,
	namespace TEXT NOT NULL,
	name TEXT NOT NULL,
	queue TEXT NOT NULL,
	username TEXT NOT NULL,
	phase TEXT NOT NULL,
	why TEXT NOT NULL,
	created BIGINT NOT NULL,
	ended BIGINT NOT NULL,
	replicas INTEGER NOT NULL,
	restarts INTEGER NOT NULL,
	gone BIGINT NOT NULL,
	object TEXT NOT NULL
);
CREATE INDEX jobs_created ON jobs (created, uid);
CREATE INDEX jobs_name ON jobs (namespace, name);
CREATE TABLE conditions (
	job TEXT NOT NULL,
	type TEXT NOT NULL,
	status TEXT NOT NULL,
	reason TEXT NOT NULL,
	message TEXT NOT NULL,
	since BIGINT NOT NULL,
	PRIMARY KEY (job, type, since, status, reason)
);
CREATE TABLE attempts (
	uid TEXT PRIMARY KEY,
	version BIGINT NOT NULL,
	job TEXT NOT NULL,
	replica TEXT NOT NULL,
	role TEXT NOT NULL,
	replica_rank INTEGER NOT NULL,
	number INTEGER NOT NULL,
	node TEXT NOT NULL,
	created BIGINT NOT NULL,
	scheduled BIGINT NOT NULL,
	started BIGINT NOT NULL,
	ended BIGINT NOT NULL,
	outcome TEXT NOT NULL,
	exit_code INTEGER,
	cause TEXT NOT NULL,
	requests TEXT NOT NULL,
	pod TEXT NOT NULL
);
CREATE INDEX attempts_job ON attempts (job, role, replica_rank, number);
CREATE INDEX attempts_scheduled ON attempts (scheduled);
CREATE TABLE events (
	uid TEXT PRIMARY KEY,
	version BIGINT NOT NULL,
	job TEXT NOT NULL,
	at BIGINT NOT NULL,
	object TEXT NOT NULL
);
CREATE INDEX events_job ON events (job, at);
CREATE TABLE logs (
	attempt TEXT NOT NULL,
	container TEXT NOT NULL,
	job TEXT NOT NULL,
	at BIGINT NOT NULL,
	size BIGINT NOT NULL,
	cut INTEGER NOT NULL,
	text $BYTES NOT NULL,
	PRIMARY KEY (attempt, container)
);
CREATE INDEX logs_job ON logs (job, at);
CREATE INDEX logs_at ON logs (at);
-- The row "recording" has the time at which the recorder last wrote.
CREATE TABLE moments (
	name TEXT PRIMARY KEY,
	at BIGINT NOT NULL
);
INSERT INTO moments (name, at) VALUES ('recording', 0);
