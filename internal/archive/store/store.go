// Package store stores the archive in SQLite (one file) or PostgreSQL. It interprets no record, except the last
// observed pod of a lost attempt. Writing a record twice has no effect. An older record does not replace a newer one;
// an older record of a job only adds its conditions. Start reading at Open and Write.
package store

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	_ "modernc.org/sqlite"             // the driver "sqlite"
)

// Options limit the size of the logs in the archive.
type Options struct {
	// JobLogs and AllLogs are the largest sizes of the logs of one job and of all jobs, in bytes. The oldest logs are
	// dropped first. Zero means the default.
	JobLogs, AllLogs int64
}

// Defaults of Options, in bytes.
const (
	DefaultJobLogs = 4 << 20
	DefaultAllLogs = 1 << 30
)

// Store is an archive. It is safe for concurrent use. Several programs can use the same PostgreSQL database.
type Store struct {
	db       *sql.DB
	postgres bool
	options  Options
}

// Open opens the archive at an address. It creates the archive if it does not exist, and updates its schema. The
// address is the URL of a PostgreSQL database, postgres://USER@HOST/DATABASE, or the path of a file.
func Open(ctx context.Context, address string, o Options) (*Store, error) {
	if o.JobLogs == 0 {
		o.JobLogs = DefaultJobLogs
	}
	if o.AllLogs == 0 {
		o.AllLogs = DefaultAllLogs
	}
	s := &Store{options: o, postgres: strings.HasPrefix(address, "postgres://") || strings.HasPrefix(address, "postgresql://")}
	driver, source := "pgx", address
	if !s.postgres {
		path, err := filepath.Abs(address)
		if err != nil {
			return nil, fmt.Errorf("opening the archive: %w", err)
		}
		if err := private(path); err != nil {
			return nil, fmt.Errorf("opening the archive: %w", err)
		}
		// A committed write survives a kill of the program. A crash of the machine may lose the last writes, which the
		// recorder reads from the cluster again. SQLite keeps temporary data in memory, because there may be no other
		// writable directory.
		driver, source = "sqlite", (&url.URL{Scheme: "file", OmitHost: true, Path: path,
			RawQuery: "_pragma=busy_timeout(30000)&_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)&_pragma=temp_store(MEMORY)&_txlock=immediate"}).String()
	}
	var err error
	if s.db, err = sql.Open(driver, source); err != nil {
		return nil, fmt.Errorf("opening the archive: %w", err)
	}
	s.db.SetMaxOpenConns(8)
	if err := s.migrate(ctx); err != nil {
		s.db.Close()
		return nil, fmt.Errorf("opening the archive: %w", err)
	}
	return s, nil
}

// Claim binds the archive to the cluster with the given UID. It returns an error if the archive is bound to another
// cluster: otherwise the records of both clusters would mix, and each recorder would mark the jobs of the other cluster
// as deleted.
func (s *Store) Claim(ctx context.Context, uid string) error {
	err := s.transact(ctx, func(tx *tx) error {
		tx.exec(`INSERT INTO cluster (number, uid) VALUES (1, ?) ON CONFLICT DO NOTHING`, uid)
		var owner string
		tx.row(`SELECT uid FROM cluster`, nil, &owner)
		if tx.err == nil && owner != uid {
			return fmt.Errorf("it belongs to the cluster with the UID %s, and the UID of this cluster is %s: give each cluster its own archive", owner, uid)
		}
		return tx.err
	})
	if err != nil {
		return fmt.Errorf("claiming the archive: %w", err)
	}
	return nil
}

// Size returns the size of the database in bytes.
func (s *Store) Size(ctx context.Context) (int64, error) {
	query := `SELECT page_count * page_size FROM pragma_page_count, pragma_page_size`
	if s.postgres {
		query = `SELECT pg_database_size(current_database())`
	}
	var size int64
	if err := s.db.QueryRowContext(ctx, query).Scan(&size); err != nil {
		return 0, fmt.Errorf("asking for the size of the archive: %w", err)
	}
	return size, nil
}

// private creates a file that only its owner can read, unless it exists. SQLite creates its other files with the same
// mode.
func private(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

// Close closes the archive.
func (s *Store) Close() error { return s.db.Close() }

//go:embed migrations/*.sql
var migrations embed.FS

// migrationLock is the key of the PostgreSQL advisory lock that a program holds while it changes tables.
const migrationLock = 0x7439_6b61

// migrate applies the migrations that the database does not have yet. The name of each migration's file begins with its
// number.
func (s *Store) migrate(ctx context.Context) error {
	return s.transact(ctx, func(tx *tx) error {
		if s.postgres {
			tx.exec(`SELECT pg_advisory_xact_lock(?)`, migrationLock)
		}
		tx.exec(`CREATE TABLE IF NOT EXISTS migrations (number INTEGER PRIMARY KEY, at BIGINT NOT NULL)`)
		var done int
		tx.row(`SELECT COALESCE(MAX(number), 0) FROM migrations`, nil, &done)
		if tx.err != nil {
			return tx.err
		}
		files, err := fs.Glob(migrations, "migrations/*.sql")
		if err != nil {
			return err
		}
		if done > len(files) {
			return fmt.Errorf("a newer program has changed it to version %d, and this one knows version %d: use the newer program", done, len(files))
		}
		for i, name := range files {
			if i < done {
				continue
			}
			script, err := migrations.ReadFile(name)
			if err != nil {
				return err
			}
			tx.script(string(script))
			tx.exec(`INSERT INTO migrations (number, at) VALUES (?, ?)`, i+1, milli(time.Now()))
		}
		return tx.err
	})
}

// script executes the statements of a migration. It replaces the variables $BYTES and $AND_REQUESTS by text in the
// database's dialect of SQL.
func (t *tx) script(text string) {
	words := strings.NewReplacer("$BYTES", "BLOB", "$AND_REQUESTS", ", requests")
	if t.postgres {
		words = strings.NewReplacer("$BYTES", "BYTEA", "$AND_REQUESTS", "")
	}
	for statement := range strings.SplitSeq(words.Replace(text), ";\n") {
		if strings.TrimSpace(statement) != "" {
			t.exec(statement)
		}
	}
}

// tx is a transaction. After the first error, its methods do nothing.
type tx struct {
	*sql.Tx
	ctx      context.Context //nolint:containedctx // a transaction belongs to a single call, and this is the context of the call
	postgres bool
	err      error
}

// transact calls f in a transaction, and rolls it back if f returns an error.
func (s *Store) transact(ctx context.Context, f func(*tx) error) error {
	begun, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("beginning a transaction: %w", err)
	}
	if err := f(&tx{Tx: begun, ctx: ctx, postgres: s.postgres}); err != nil {
		_ = begun.Rollback() // the error of f is more useful
		return err
	}
	if err := begun.Commit(); err != nil {
		return fmt.Errorf("committing a transaction: %w", err)
	}
	return nil
}

func (t *tx) exec(query string, args ...any) {
	if t.err != nil {
		return
	}
	_, t.err = t.ExecContext(t.ctx, numbered(query, t.postgres), args...)
}

func (t *tx) row(query string, args []any, into ...any) {
	if t.err != nil {
		return
	}
	t.err = t.QueryRowContext(t.ctx, numbered(query, t.postgres), args...).Scan(into...)
}

// query calls scan for each row of a query's result.
func (s *Store) query(ctx context.Context, query string, args []any, scan func(*sql.Rows) error) error {
	rows, err := s.db.QueryContext(ctx, numbered(query, s.postgres), args...)
	if err != nil {
		return fmt.Errorf("reading the archive: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return fmt.Errorf("reading the archive: %w", err)
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("reading the archive: %w", err)
	}
	return nil
}

// numbered replaces each ? by $1, $2 and so on, which PostgreSQL requires. Queries use ? only as a placeholder.
func numbered(query string, postgres bool) string {
	if !postgres {
		return query
	}
	var b strings.Builder
	for n := 1; ; n++ {
		before, after, found := strings.Cut(query, "?")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		b.WriteString("$" + strconv.Itoa(n))
		query = after
	}
}

func milli(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

func moment(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}
