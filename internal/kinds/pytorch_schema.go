package kinds

import "strings"

// pyTorchSchema describes the rules of PyTorchTrainingJob. In addition to the fields of all training jobs, the options
// of torchrun and of elastic scaling are immutable on live jobs, except expectedReplicas.
var pyTorchSchema = schema{
	kept: append([]keptField{
		{"torchrunConfig.enabled", aSwitch}, {"torchrunConfig.maxRestarts", "-1"}, {"torchrunConfig.procPerNode", "''"},
		{"torchrunConfig.rdzvBackend", "'c10d'"}, {"torchrunConfig.extraOptions", "[]"},
		{"elastic.enabled", aSwitch}, {"elastic.minReplicas", "0"}, {"elastic.maxReplicas", "0"},
	}, trainingKept...),
	roleKept: []keptField{{"replicas", ""}, {"scalingWeight", "1"}, {"restartPolicy", "'OnFailure'"}, {"template", ""}},
	most:     "(" + elasticNow + " && has(self.spec.elastic.maxReplicas) ? self.spec.elastic.maxReplicas : r.replicas)",
	elastic:  elasticNow,
	rules:    elasticRules(),
}

// elasticNow is the CEL expression that is true for an elastic job.
var elasticNow = isOn("self.spec.elastic") + " && " + isOn("self.spec.torchrunConfig")

// elasticRules returns the rules that keep an elastic job within its bounds, and that make expectedReplicas immutable
// if a job is not elastic, because it then has no effect. An expectedReplicas of 0 means unset, because the scale
// subresource needs a number there. A live elastic job cannot be scaled to 0.
func elasticRules() []SchemaRule {
	const (
		least, most, wanted = "self.spec.elastic.minReplicas", "self.spec.elastic.maxReplicas", "self.spec.elastic.expectedReplicas"
		bounds              = "an elastic job has bounds: give the least and the largest number of replicas"
		rigid               = "the job is not elastic, so it cannot be scaled: set elastic.enabled when you create it"
	)
	unsaid := wanted + " == 0 && (!oldSelf.hasValue() || " + strings.ReplaceAll(expected.of("self.spec"), "self.spec", "oldSelf.value().spec") + " == 0)"
	unless := "!(" + elasticNow + ") || "
	return []SchemaRule{
		{FieldPath: ".spec.elastic.minReplicas", OptionalOldSelf: true, Message: bounds, Rule: isNew + unless + "has(" + least + ")"},
		{FieldPath: ".spec.elastic.maxReplicas", OptionalOldSelf: true, Message: bounds, Rule: isNew + unless + "has(" + most + ")"},
		{
			FieldPath: ".spec.elastic.minReplicas", OptionalOldSelf: true, Message: "more than maxReplicas: lower it, or raise maxReplicas",
			MessageExpression: "'more than maxReplicas, which is %d: lower it, or raise maxReplicas'.format([" + most + "])",
			Rule:              isNew + unless + "!has(" + least + ") || !has(" + most + ") || " + least + " <= " + most,
		},
		{
			FieldPath: ".spec.elastic.expectedReplicas", OptionalOldSelf: true,
			Message:           "outside of the bounds of this job: choose a number from minReplicas to maxReplicas",
			MessageExpression: "'outside of the bounds of this job: choose a number from %d to %d'.format([" + least + ", " + most + "])",
			Rule: unless + "!has(" + wanted + ") || !has(" + least + ") || !has(" + most + ") || " + least + " > " + most + " || " +
				unsaid + " || " + wanted + " >= " + least + " && " + wanted + " <= " + most,
		},
		{
			FieldPath: ".spec.elastic.expectedReplicas", Message: rigid,
			Rule: elasticNow + " || " + expected.same("self.spec", "oldSelf.spec"),
		},
	}
}

var expected = keptField{"elastic.expectedReplicas", "0"}
