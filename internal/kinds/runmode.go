package kinds

import (
	"iter"

	"k8s.io/apimachinery/pkg/util/validation/field"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/engine"
)

// runMode converts the run modes, and sets the default command of debug mode. The roles must have been converted.
func (c *conversion) runMode(m *batch.RunMode) {
	idle := []string{"sleep", "inf"}
	for i := range c.job.Roles {
		c.job.Roles[i].Debug.Command = idle
	}
	if m == nil {
		return
	}
	if d := m.Debug; d != nil {
		c.job.Debug = switchedOn(d.Enabled, d.Enable)
		for i, role := range c.modeRoles(len(d.ReplicaSpecs), func(i int) string { return d.ReplicaSpecs[i].Type }) {
			role.Debug.SkipInitContainers = d.ReplicaSpecs[i].SkipInitContainer
			if command := unlessEmpty(d.ReplicaSpecs[i].Command); command != nil {
				role.Debug.Command = command
			}
		}
	}
	if p := m.Pause; p != nil {
		c.job.Pause = switchedOn(p.Enabled, p.Enable)
		for i, role := range c.modeRoles(len(p.ResumeSpecs), func(i int) string { return p.ResumeSpecs[i].Type }) {
			s := &p.ResumeSpecs[i]
			role.Resume = engine.Resume{
				SkipInitContainers: s.SkipInitContainer,
				Command:            unlessEmpty(s.Command),
				Args:               unlessEmpty(s.Args),
			}
		}
	}
}

// modeRoles yields the index of each spec of a run mode with the role that the spec names. It skips specs that name no
// role of the job. If two specs name the same role, it yields only the first.
func (c *conversion) modeRoles(n int, named func(int) string) iter.Seq2[int, *engine.Role] {
	return func(yield func(int, *engine.Role) bool) {
		seen := map[*engine.Role]bool{}
		for i := range n {
			role := roleOf(c.job, named(i))
			if role == nil || seen[role] {
				continue
			}
			seen[role] = true
			if !yield(i, role) {
				return
			}
		}
	}
}

// runMode validates the debug and pause modes, and stores the paths of their specs for later errors.
func (v *validator) runMode(m *batch.RunMode, path *field.Path) {
	if d := orZero(m).Debug; d != nil {
		v.debugPaths = v.modeSpecs(path.Child("debug", "replicaSpecs"), len(d.ReplicaSpecs), func(i int) string { return d.ReplicaSpecs[i].Type })
	}
	if p := orZero(m).Pause; p != nil {
		v.resumePaths = v.modeSpecs(path.Child("pause", "resumeSpecs"), len(p.ResumeSpecs), func(i int) string { return p.ResumeSpecs[i].Type })
	}
}

// modeSpecs checks that each spec of a run mode names a different, existing role. It returns the specs' paths by the
// index of the role.
func (v *validator) modeSpecs(path *field.Path, n int, named func(int) string) map[int]*field.Path {
	paths := make(map[int]*field.Path, n)
	for i := range n {
		name, at := named(i), path.Index(i).Child("type")
		switch role := roleIndex(v.job, name); {
		case role < 0:
			v.invalid(at, name, unknownRole(v.job, name))
		case paths[role] != nil:
			v.invalid(at, name, "this role has a spec already, above: merge the two")
		default:
			paths[role] = path.Index(i)
		}
	}
	return paths
}

// modeTexts visits the texts that the run modes put into the pods of a role. These texts override texts of the
// template, and variables are replaced in them too. The list field of each place is the run mode.
func modeTexts(r *engine.Role, visit func(place, *string)) {
	each := func(mode, field string, texts []string) {
		for i := range texts {
			visit(place{list: mode, field: field, index: i}, &texts[i])
		}
	}
	each(debugMode, "command", r.Debug.Command)
	each(resumeMode, "command", r.Resume.Command)
	each(resumeMode, "args", r.Resume.Args)
}

// debugMode and resumeMode are the values of place.list for texts of run modes.
const debugMode, resumeMode = "debug", "resume"

// switchedOn reports whether a switch is on. enabled takes precedence over enable, which is its older spelling.
func switchedOn(enabled, enable *bool) bool {
	if enabled != nil {
		return *enabled
	}
	return enable != nil && *enable
}

// unlessEmpty returns nil for an empty list: clients with typed objects drop empty lists, so an empty list means the
// same as an unset one.
func unlessEmpty(list []string) []string {
	if len(list) == 0 {
		return nil
	}
	return list
}
