package kinds

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	"tensorstack.dev/batch/internal/engine"
)

// runMode lowers the run modes. It needs the roles.
func (l *lowering) runMode(m *batch.RunMode, path *field.Path) {
	idle := []string{"sleep", "inf"}
	for i := range l.job.Roles {
		l.job.Roles[i].Debug.Command = idle
	}
	if m == nil {
		return
	}
	if d := m.Debug; d != nil {
		l.job.Debug = switchedOn(d.Enabled, d.Enable)
		l.debugPaths = l.modeSpecs(path.Child("debug", "replicaSpecs"), len(d.ReplicaSpecs), func(i int) string {
			return d.ReplicaSpecs[i].Type
		}, func(i int, role *engine.Role) {
			role.Debug.SkipInitContainers = d.ReplicaSpecs[i].SkipInitContainer
			if command := unlessEmpty(d.ReplicaSpecs[i].Command); command != nil {
				role.Debug.Command = command
			}
		})
	}
	if p := m.Pause; p != nil {
		l.job.Pause = switchedOn(p.Enabled, p.Enable)
		l.resumePaths = l.modeSpecs(path.Child("pause", "resumeSpecs"), len(p.ResumeSpecs), func(i int) string {
			return p.ResumeSpecs[i].Type
		}, func(i int, role *engine.Role) {
			s := &p.ResumeSpecs[i]
			role.Resume = engine.Resume{
				SkipInitContainers: s.SkipInitContainer,
				Command:            unlessEmpty(s.Command),
				Args:               unlessEmpty(s.Args),
			}
		})
	}
}

// modeSpecs hands each spec of a run mode to the role that it names. It returns the specs' paths by the index of the role.
func (l *lowering) modeSpecs(path *field.Path, n int, named func(int) string, set func(int, *engine.Role)) map[int]*field.Path {
	var paths map[int]*field.Path
	for i := range n {
		name, at := named(i), path.Index(i)
		role := l.roleIndex(name)
		if role < 0 {
			l.invalid(at.Child("type"), name, unknownRole(l.job, name))
			continue
		}
		if paths[role] != nil {
			l.invalid(at.Child("type"), name, "this role has a spec already, above: merge the two")
			continue
		}
		if paths == nil {
			paths = make(map[int]*field.Path, n)
		}
		paths[role] = at
		set(i, &l.job.Roles[role])
	}
	return paths
}

// modeTexts visits the texts that the run modes put into the pods of a role. Variables are replaced in them as in those of
// the template, which they stand in for.
func (l *lowering) modeTexts(role int, visit func(s string, path func() *field.Path)) {
	each := func(list []string, spec *field.Path, name string) {
		for i, s := range list {
			visit(s, func() *field.Path { return spec.Child(name).Index(i) })
		}
	}
	r := &l.job.Roles[role]
	each(r.Debug.Command, l.debugPaths[role], "command")
	each(r.Resume.Command, l.resumePaths[role], "command")
	each(r.Resume.Args, l.resumePaths[role], "args")
}

// switchedOn reads a switch and its older spelling.
func switchedOn(enabled, enable *bool) bool {
	if enabled != nil {
		return *enabled
	}
	return enable != nil && *enable
}

// unlessEmpty turns an empty list into nil: clients with typed objects drop empty lists, so they mean no more than unset ones.
func unlessEmpty(list []string) []string {
	if len(list) == 0 {
		return nil
	}
	return list
}
