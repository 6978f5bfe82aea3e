package convert

import "fmt"

var tensorFlow = framework{
	field: "tfReplicaSpecs",
	roles: [][2]string{{"Chief", "chief"}, {"Master", "chief"}, {"Worker", "worker"}, {"PS", "ps"}, {"Evaluator", "evaluator"}},

	container: "tensorflow", port: "tfjob-port", newPort: "tensorflow", restart: "Never",
}

// successPolicies maps the policies that select the deciding replicas.
var successPolicies = map[string]string{"AllWorkers": "AllWorkers"}

func (c *conversion) tensorFlow() {
	for _, r := range c.roles(&tensorFlow) {
		if r.spec["type"] == "chief" && r.key != "Chief" && r.key != "chief" {
			c.warn(r.path, "called chief here: its pods are NAME-chief-RANK, and TF_CONFIG says chief")
		}
	}
	if policy, ok := c.one(successPolicies, "spec", "successPolicy"); ok {
		c.warn("spec.successPolicy", fmt.Sprintf("%s is left out: the job succeeds with its chief or, where there is none, with worker 0; "+
			"a GenericJob can have the success of all workers as a rule", policy))
	}
	if c.flag("spec", "enableDynamicWorker") {
		c.warn("spec.enableDynamicWorker", "left out: TF_CONFIG lists all replicas here, and their number is fixed")
	}
}
