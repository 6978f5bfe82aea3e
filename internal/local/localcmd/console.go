package localcmd

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
)

// newConsole returns the command "console".
func newConsole(c *cluster) *cobra.Command {
	return &cobra.Command{
		Use:   "console",
		Short: "Print an address that opens the console of the running cluster, once",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := c.existing()
			if err != nil {
				return err
			}
			if !d.Running() {
				return fmt.Errorf("cluster %s is down; %q starts it", d.Name(), "t9k local up"+d.NameFlag())
			}
			console, err := d.ConsoleURL()
			if err != nil {
				return err
			}
			if console == "" {
				return errors.New("this cluster runs without a console: `t9k ui` serves one for you")
			}
			fmt.Fprintln(cmd.OutOrStdout(), console)
			return nil
		},
	}
}
