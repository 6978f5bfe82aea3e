package kinds

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
)

// xgBoostTrainingJob connects its replicas with the variables of XGBoost's tracker.
var xgBoostTrainingJob = Kind{
	Name:           "XGBoostTrainingJob",
	Plural:         "xgboosttrainingjobs",
	ShortName:      "xtj",
	New:            func() Object { return &batch.XGBoostTrainingJob{} },
	NewList:        func() runtime.Object { return &batch.XGBoostTrainingJobList{} },
	framework:      &xgBoost,
	convert:        convertXGBoost,
	validate:       validateXGBoost,
	validateUpdate: validateXGBoostUpdate,
	schema: schema{
		kept:     trainingKept,
		roleKept: []keptField{{"replicas", ""}, {"restartPolicy", "'OnFailure'"}, {"template", ""}},
	},
	Status: func(o Object) *batch.JobStatus { return &o.(*batch.XGBoostTrainingJob).Status.JobStatus },
	Training: func(o Object) (*batch.TrainingSpec, *batch.TrainingStatus) {
		j := o.(*batch.XGBoostTrainingJob)
		return &j.Spec.TrainingSpec, &j.Status.TrainingStatus
	},
}

var xgBoost = framework{containers: []string{"xgboost"}, port: 9091, portName: "xgboost"}

func convertXGBoost(o Object, c *conversion) {
	spec := &o.(*batch.XGBoostTrainingJob).Spec
	for i := range spec.ReplicaSpecs {
		c.trainingRole(&spec.ReplicaSpecs[i], &xgBoost)
	}
	sane := c.counted()
	c.training(&spec.TrainingSpec)
	if !sane || c.job.Replicas() == 0 {
		return
	}
	master := c.firstRole()
	c.master(master, 0)
	c.job.Service = xgBoost.service(&c.job.Roles[master])
	c.job.Collective = true
	host, port := c.job.PodName(c.job.Roles[master].Type, 0), strconv.Itoa(int(xgBoost.portOf(&c.job.Roles[master])))
	for i := range c.job.Roles {
		c.addEnv(i, "DMLC_TRACKER_URI", len(host))
		c.addEnv(i, "DMLC_TRACKER_PORT", len(port))
		c.job.Roles[i].Expand = func(_ int, s *corev1.PodSpec) {
			setEnv(s, env("DMLC_TRACKER_URI", host), env("DMLC_TRACKER_PORT", port))
		}
	}
}

func validateXGBoost(o Object, v *validator) {
	spec, path := &o.(*batch.XGBoostTrainingJob).Spec, field.NewPath("spec")
	for i := range spec.ReplicaSpecs {
		v.trainingRole(&spec.ReplicaSpecs[i], path.Child("replicaSpecs").Index(i))
	}
	v.replicas(path.Child("replicaSpecs"))
	v.training(&spec.TrainingSpec, path)
}

func validateXGBoostUpdate(updated, old Object, c *changes) {
	u, o := updated.(*batch.XGBoostTrainingJob), old.(*batch.XGBoostTrainingJob)
	path := field.NewPath("spec")
	c.training(path, &u.Spec.TrainingSpec, &o.Spec.TrainingSpec)
	specs := path.Child("replicaSpecs")
	if !sameRoles(c, specs, u.Spec.ReplicaSpecs, o.Spec.ReplicaSpecs, func(s *batch.TrainingReplicaSpec) string { return s.Type }) {
		return
	}
	for i := range u.Spec.ReplicaSpecs {
		c.trainingRole(specs.Index(i), &u.Spec.ReplicaSpecs[i], &o.Spec.ReplicaSpecs[i])
	}
}
