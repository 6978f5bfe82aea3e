package local

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"tensorstack.dev/batch/internal/console/ticket"
)

// consoleKey returns the path of the key of the console's tokens. Only the owner can read it, like everything in the
// directory.
func (d Dir) consoleKey() string { return d.join("console.key") }

// makeConsoleKey creates the key of the console's tokens if it is missing.
func (d Dir) makeConsoleKey() error {
	if _, err := os.Stat(d.consoleKey()); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := writeFile(d.consoleKey(), ticket.NewKey(), 0o600); err != nil {
		return fmt.Errorf("writing the key of the console: %w", err)
	}
	return nil
}

// ConsoleURL returns an address that opens the console once, within 15 minutes. It returns an empty string if the
// cluster has no console.
func (d Dir) ConsoleURL() (string, error) {
	c, err := d.Load()
	if err != nil || !c.has(Console) {
		return "", err
	}
	key, err := ticket.ReadKey(d.consoleKey())
	if err != nil {
		return "", err
	}
	return "http://" + c.loopback(Console) + "/?token=" + key.Issue(time.Now()), nil
}

// WithoutConsole lists every component of AllComponents except the console.
func WithoutConsole() []string {
	return slices.DeleteFunc(AllComponents(), func(c string) bool { return c == Console })
}

// consoleBase returns the console's default configuration. The console caches access reviews for only one second,
// because it has one user and therefore sends few reviews.
func consoleBase(d Dir, c *Config) string {
	return fmt.Sprintf(`{server: {bindAddress: "%s"}, health: {bindAddress: "0"}, metrics: {bindAddress: "0"}, clusterName: %q, accessCacheTime: 1s, archive: {address: %q}}`,
		c.loopback(Console), d.Name(), d.join("archive.db"))
}

// consoleArgs returns the console's command-line arguments.
func consoleArgs(d Dir, c *Config) []string {
	return []string{"console-server",
		"--kubeconfig=" + d.Kubeconfig(),
		"--config=" + d.settingsFile(Console),
		"--key-file=" + d.consoleKey(),
		"--archive-bind-address=" + c.loopback(archiveServer),
		"--tls-cert-file=" + d.certFile(loopbackPair),
		"--tls-private-key-file=" + d.keyFile(loopbackPair),
		"--client-ca-file=" + d.certFile("ca"),
	}
}

// consoleNeeds returns the console's Needs: CRDs, because the console watches their resources, or else the API server.
func consoleNeeds(c *Config) []string {
	if c.has(CRDs) {
		return []string{CRDs}
	}
	return []string{APIServer}
}
