// Package version implements "t9k version", which prints the version of this program.
package version

import (
	"encoding/json"
	"fmt"
	"runtime"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"tensorstack.dev/batch/internal/cli/kit"
	"tensorstack.dev/batch/internal/version"
)

// Command returns the command "t9k version".
func Command(p *kit.Program) *cobra.Command {
	var o kit.Format
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of this program",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			info := struct {
				Version   string `json:"version"`
				GoVersion string `json:"goVersion"`
				Platform  string `json:"platform"`
			}{version.Version, runtime.Version(), version.Platform()}
			switch o {
			case kit.JSON:
				data, err := json.MarshalIndent(info, "", "    ")
				if err != nil {
					return fmt.Errorf("printing: %w", err)
				}
				fmt.Fprintln(p.Out, string(data))
			case kit.YAML:
				data, err := yaml.Marshal(info)
				if err != nil {
					return fmt.Errorf("printing: %w", err)
				}
				fmt.Fprint(p.Out, string(data))
			default:
				fmt.Fprint(p.Out, version.Line(p.Name))
			}
			return nil
		},
	}
	kit.AddOutputFlag(cmd, &o, kit.JSON, kit.YAML)
	return cmd
}
