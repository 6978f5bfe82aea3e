package convert

import "fmt"

var tensorFlow = framework{
	field: "tfReplicaSpecs",
	roles: [][2]string{{"Chief", "chief"}, {"Master", "chief"}, {"Worker", "worker"}, {"PS", "ps"}, {"Evaluator", "evaluator"}},

	container: "tensorflow", port: "tfjob-port", newPort: "tensorflow", restart: "Never",
}

// successPolicies are the values of Kubeflow's successPolicy other than the default. This API has no counterpart for
// them.
var successPolicies = map[string]string{"AllWorkers": "AllWorkers"}

func (c *conversion) tensorFlow() {
	for _, r := range c.roles(&tensorFlow) {
		if r.spec["type"] == "chief" && r.key != "Chief" && r.key != "chief" {
			c.warn(r.path, "called chief here: its pods are called NAME-chief-RANK, and TF_CONFIG has chief")
		}
	}
	if policy, ok := c.one(successPolicies, "spec", "successPolicy"); ok {
		c.warn("spec.successPolicy", fmt.Sprintf("%s is left out: the job succeeds with its chief, or with worker 0 if it has no chief; "+
			"a GenericJob can require the success of all workers", policy))
	}
	if c.flag("spec", "enableDynamicWorker") {
		c.warn("spec.enableDynamicWorker", "left out: TF_CONFIG lists all replicas here, and their number is fixed")
	}
}
