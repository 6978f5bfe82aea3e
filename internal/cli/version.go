package cli

import (
	"encoding/json"
	"fmt"
	"runtime"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"tensorstack.dev/batch/internal/version"
)

func (a *app) versionCommand() *cobra.Command {
	var o output
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of this program",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			info := struct {
				Version   string `json:"version"`
				GoVersion string `json:"goVersion"`
				Platform  string `json:"platform"`
			}{version.Version, runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
			switch o {
			case outputJSON:
				data, err := json.MarshalIndent(info, "", "    ")
				if err != nil {
					return fmt.Errorf("printing: %w", err)
				}
				fmt.Fprintln(a.Out, string(data))
			case outputYAML:
				data, err := yaml.Marshal(info)
				if err != nil {
					return fmt.Errorf("printing: %w", err)
				}
				fmt.Fprint(a.Out, string(data))
			default:
				fmt.Fprintf(a.Out, "%s %s (%s, %s)\n", a.name, info.Version, info.GoVersion, info.Platform)
			}
			return nil
		},
	}
	addOutputFlag(cmd, &o, outputJSON, outputYAML)
	return cmd
}
