package browser

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	corev1 "k8s.io/api/core/v1"

	batch "tensorstack.dev/batch/api/batch/v1beta1"
	scheduling "tensorstack.dev/batch/api/scheduler/v1beta1"
)

// pictures is the directory to which the test writes pictures of the pages.
var pictures = flag.String("pictures", "", "directory for pictures of the pages; none are taken if it is empty")

// logText is the log of each replica in most scenes.
const logText = `2026-11-20T08:00:01.000000000Z loading /data/imagenet: 1,281,167 images in 1,000 classes
2026-11-20T08:00:02.000000000Z world size 8, local rank 0, NCCL 2.21.5
2026-11-20T08:00:20.000000000Z epoch 1  step 100  loss 6.8124  lr 0.10000  2,941 img/s
2026-11-20T08:01:20.000000000Z epoch 1  step 200  loss 6.3310  lr 0.10000  2,953 img/s
2026-11-20T08:02:20.000000000Z epoch 1  step 300  loss 5.9042  lr 0.10000  2,950 img/s
2026-11-20T08:03:20.000000000Z Traceback (most recent call last):
2026-11-20T08:03:20.100000000Z   File "/work/train.py", line 212, in <module>
2026-11-20T08:03:20.200000000Z     loss.backward()
2026-11-20T08:03:20.300000000Z torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.25 GiB
2026-11-20T08:03:40.000000000Z resuming from /checkpoints/step-300.pt
2026-11-20T08:04:40.000000000Z epoch 1  step 400  loss 5.5177  lr 0.10000  2,949 img/s
`

const hour = time.Hour

// typical returns a scene with a cluster that several teams share. It has six nodes, of which four accept pods.
func typical() *scene {
	s := &scene{&stage{log: logText}, time.Now()}
	at := func(first, each int32) func(int32) string {
		return func(rank int32) string { return fmt.Sprintf("gpu-%d", first+rank/each) }
	}
	for i := range 4 {
		s.node(fmt.Sprintf("gpu-%d", i), true)
	}
	s.node("gpu-4", false)
	s.node("gpu-5", true, func(n *corev1.Node) { n.Spec.Unschedulable = true })
	s.queue("production", 80, "8", "8", func(q *scheduling.QueueSpec) { q.Preemptible = new(bool) })
	s.queue("research", 50, "18", "24", func(q *scheduling.QueueSpec) { q.MaxDuration = "7d" })
	s.queue("notebooks", 10, "0", "4", func(q *scheduling.QueueSpec) { q.Closed = true })
	for _, p := range []play{
		{"vision", "resnet50-imagenet", "research", "amelie", batch.JobRunning, 8, 8, "1", 5 * hour, 290 * time.Minute, 0, 2 * hour, "", at(0, 8)},
		{"speech", "whisper-finetune", "production", "jonas", batch.JobRunning, 8, 8, "1", 26 * hour, 1550 * time.Minute, 0, 0, "", at(1, 8)},
		{"language", "llama-7b-pretrain", "research", "mei", batch.JobRunning, 8, 8, "1", 51 * hour, 50 * hour, 0, 0, "", at(2, 8)},
		{"vision", "detr-ablation-3", "research", "amelie", batch.JobRunning, 2, 2, "1", 40 * time.Minute, 38 * time.Minute, 0, 0, "", at(3, 8)},
		{"language", "llama-13b-pretrain", "research", "mei", batch.JobPending, 8, 0, "2", 3 * hour, 0, 0, 0, "No room: 8 pods with 2 nvidia.com/gpu each need 16 GPUs, and 6 are free in 1 node.", nil},
		{"speech", "tts-voices", "research", "jonas", batch.JobPending, 4, 0, "2", 70 * time.Minute, 0, 0, 0, "The quota of queue research has 6 nvidia.com/gpu left, and the group requests 8.", nil},
		{"vision", "detr-ablation-2", "research", "amelie", batch.JobFailed, 2, 0, "1", 4 * hour, 239 * time.Minute, 118 * time.Minute, 0, "Replica detr-ablation-2-worker-0 has failed with exit code 1: torch.cuda.OutOfMemoryError: CUDA out of memory.", at(3, 8)},
		{"vision", "detr-ablation-1", "research", "amelie", batch.JobSucceeded, 2, 0, "1", 9 * hour, 539 * time.Minute, 300 * time.Minute, 0, "", at(3, 8)},
		{"language", "tokenizer-64k", "research", "mei", batch.JobSucceeded, 1, 0, "0", 30 * hour, 1799 * time.Minute, 1700 * time.Minute, 0, "", at(3, 8)},
	} {
		s.job(&p)
	}
	return s
}

// enormous returns a scene with 150 nodes, a job with 1,200 replicas, and 1,200 waiting jobs with long names.
func enormous() *scene {
	s := &scene{&stage{log: strings.Repeat(logText, 500)}, time.Now()}
	for i := range 150 {
		s.node(fmt.Sprintf("gpu-node-with-a-long-name-%03d.rack-%02d.cluster.example.com", i, i/10), i%17 != 3)
	}
	at := func(rank int32) string {
		return fmt.Sprintf("gpu-node-with-a-long-name-%03d.rack-%02d.cluster.example.com", rank/8, rank/80)
	}
	s.queue("research", 50, "1200", "1200", func(*scheduling.QueueSpec) {})
	s.job(&play{"language", "mixture-of-experts-pretraining", "research", "mei", batch.JobRunning, 1200, 1200, "1", 50 * hour, 49 * hour, 0, 7 * hour, "", at})
	for i := range 1200 {
		s.job(&play{"language", fmt.Sprintf("hyperparameter-search-with-a-name-that-does-not-end-%04d", i), "research", "somebody.with.a.long.name@research.example.com",
			batch.JobPending, 1, 0, "8", time.Duration(i) * time.Minute, 0, 0, 0, strings.Repeat("The quota of queue research has 0 nvidia.com/gpu left. ", 8), nil})
	}
	return s
}

// broken returns a scene with failures everywhere: no node is ready, a closed queue is above its quota, and jobs fail,
// restart or wait with long messages.
func broken() *scene {
	s := &scene{&stage{}, time.Now()}
	for i := range 3 {
		s.node(fmt.Sprintf("gpu-%d", i), false)
	}
	s.queue("research", 50, "32", "8", func(q *scheduling.QueueSpec) { q.Closed = true })
	at := func(int32) string { return "gpu-0" }
	const traceback = "Replica detr-ablation-2-worker-0 has failed with exit code 1: Traceback (most recent call last):\n  File \"/work/train.py\", line 212, in <module>\n" +
		"    loss.backward()\ntorch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.25 GiB. GPU 0 has a total capacity of 79.15 GiB of which 1.2 GiB is free."
	for _, p := range []play{
		{"vision", "detr-ablation-2", "research", "amelie", batch.JobFailed, 8, 0, "1", 4 * hour, 239 * time.Minute, 118 * time.Minute, 3 * hour, traceback, at},
		{"vision", "resnet50-imagenet", "research", "amelie", batch.JobRunning, 8, 8, "1", 5 * hour, 290 * time.Minute, 0, time.Minute,
			"Waiting to restart resnet50-imagenet-worker-1 (restart 3 of 3).", at},
		{"speech", "tts-voices", "research", "jonas", batch.JobPending, 4, 0, "2", 70 * time.Minute, 0, 0, 0,
			`tts-voices-worker-0: ErrImagePull: failed to pull and unpack image "registry.example.com/research/train:2.4": failed to resolve reference: unexpected status from HEAD request: 403 Forbidden`, nil},
		{"speech", "whisper-finetune", "research", "jonas", batch.JobPending, 4, 0, "8", 70 * time.Hour, 0, 0, 0, "The queue research is closed.", nil},
		{"language", "tokenizer-64k", "research", "mei", batch.JobFailed, 1, 0, "0", 30 * hour, 1799 * time.Minute, 1799 * time.Minute, 0,
			"spec.replicaSpecs[0].template.spec.containers: a container is required", nil},
	} {
		s.job(&p)
	}
	return s
}

// gpus is the manifest that TestPictures enters on the page Submit.
const gpus = `apiVersion: batch.tensorstack.dev/v1beta1
kind: PyTorchTrainingJob
metadata:
  name: detr-ablation-4
spec:
  scheduler: {t9kScheduler: {queue: research}}
  torchrunConfig: {enabled: true, procPerNode: "2"}
  replicaSpecs:
    - type: node
      replicas: 4
      template:
        spec:
          containers:
            - name: pytorch
              image: registry.example.com/research/train:2.4
              args: [train.py, --config, detr.yaml]
              resources:
                requests: {cpu: 8, memory: 64Gi}
                limits: {nvidia.com/gpu: 2}
`

// typed holds the text to enter on the page Submit, by the name of the scene and of the picture, separated by a space.
var typed = map[string]string{
	"typical submit": gpus,
	"typical errors": strings.NewReplacer("replicas: 4", "replica: 4", "image:", "imgae:", "64Gi", "64 GB", "- type: node", "- type: node\n      restartPolicy: Sometimes").Replace(gpus),
	"enormous submit": strings.Repeat(strings.NewReplacer("detr-ablation-4", strings.Repeat("long-name-", 5)+"job", "replicas: 4", "replicas: 4000",
		"detr.yaml", strings.Repeat("a-long-argument-", 20)).Replace(gpus)+"---\n", 3) + strings.Repeat("# a comment\n", 300),
}

// TestPictures verifies the looks of each page with typical data, without data, with failures everywhere, and with
// enormous data, and takes pictures.
func TestPictures(t *testing.T) {
	job := "/jobs/vision/genericjob/resnet50-imagenet"
	for name, c := range map[string]struct {
		scene *scene
		// past is the scene of the archive; nil for an empty archive.
		past  *scene
		paths map[string]string
	}{
		"typical": {typical(), month(), map[string]string{"jobs": "/", "job": job,
			"failed": "/jobs/vision/genericjob/detr-ablation-2", "waiting": "/jobs/speech/genericjob/tts-voices",
			"logs": job + "/logs?replica=worker-0", "queues": "/queues", "nodes": "/nodes", "submit": "/submit?ns=vision", "errors": "/submit?ns=vision",
			"history": "/history", "past": "/history/language-llama-7b-pretrain-67", "past-logs": "/history/language-llama-7b-pretrain-67/logs", "usage": "/history/usage"}},
		"empty": {&scene{&stage{}, time.Now()}, nil, map[string]string{"jobs": "/", "queues": "/queues", "nodes": "/nodes", "submit": "/submit", "history": "/history", "history-none": "/history?q=nothing", "usage": "/history/usage"}},
		"failing": {broken(), nil, map[string]string{"jobs": "/", "failed": "/jobs/vision/genericjob/detr-ablation-2", "restarting": job,
			"image": "/jobs/speech/genericjob/tts-voices", "invalid": "/jobs/language/genericjob/tokenizer-64k", "explain": job + "?tab=explain",
			"events": job + "?tab=events", "no-logs": job + "/logs", "queues": "/queues", "nodes": "/nodes"}},
		"enormous": {enormous(), ages(), map[string]string{"jobs": "/", "job": "/jobs/language/genericjob/mixture-of-experts-pretraining",
			"explain": "/jobs/language/genericjob/mixture-of-experts-pretraining?tab=explain", "events": "/jobs/language/genericjob/mixture-of-experts-pretraining?tab=events",
			"manifest": "/jobs/language/genericjob/mixture-of-experts-pretraining?tab=manifest&form=pods",
			"logs":     "/jobs/language/genericjob/mixture-of-experts-pretraining/logs", "queues": "/queues", "nodes": "/nodes", "submit": "/submit",
			"history": "/history", "past": "/history/language-mixture-of-experts-pretraining", "past-logs": "/history/language-mixture-of-experts-pretraining/logs",
			"usage": "/history/usage?by=user"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := open(t, serveStage(t, c.scene.stage, c.past))
			for page, path := range c.paths {
				b.visit(path)
				switch page {
				case "logs", "past-logs":
					b.awaits("the log is there", "document.querySelectorAll('#log .l').length > 5")
				case "job", "failed", "past":
					b.awaits("the timeline is there", "document.querySelectorAll('.lane').length > 1")
				case "no-logs":
					b.shows("the log cannot be read at present, trying again: ", "no route to host")
				case "submit", "errors":
					if text := typed[name+" "+page]; text != "" {
						b.enters(text)
						b.awaits("it is checked", "document.querySelector('.diagnostic, #ask-run')")
					}
				}
				b.looksGood()
				b.picture(name, page, 1280)
				if page == "jobs" || page == "job" {
					b.picture(name, page+"-phone", 360)
				}
			}
		})
	}
}

// write writes a picture with at most 256 colours, which takes a third of the space of the original.
func write(path string, data []byte) error {
	full, err := png.Decode(bytes.NewReader(data))
	if err != nil {
		return err
	}
	small := image.NewPaletted(full.Bounds(), paletteOf(full))
	draw.Draw(small, small.Bounds(), full, image.Point{}, draw.Src)
	var out bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, small); err != nil {
		return err
	}
	return os.WriteFile(path, out.Bytes(), 0o644) //nolint:gosec // part of the documentation
}

// paletteOf returns up to 256 colours of a picture: the most frequent ones, and those that differ most from them.
func paletteOf(full image.Image) color.Palette {
	const most, frequent = 256, 100
	count := map[color.RGBA]int{}
	for y := range full.Bounds().Dy() {
		for x := range full.Bounds().Dx() {
			count[color.RGBAModel.Convert(full.At(x, y)).(color.RGBA)]++
		}
	}
	rest := slices.SortedFunc(maps.Keys(count), func(a, b color.RGBA) int {
		return cmp.Or(cmp.Compare(count[b], count[a]), bytes.Compare([]byte{a.R, a.G, a.B}, []byte{b.R, b.G, b.B}))
	})
	var palette color.Palette
	nearest := map[color.RGBA]int{}
	for len(rest) > 0 && len(palette) < most {
		next := 0
		if len(palette) >= frequent {
			for i := range rest {
				if nearest[rest[i]] > nearest[rest[next]] {
					next = i
				}
			}
		}
		c := rest[next]
		palette, rest = append(palette, c), slices.Delete(rest, next, next+1)
		for _, r := range rest {
			d := distance(c, r)
			if old, known := nearest[r]; !known || d < old {
				nearest[r] = d
			}
		}
	}
	return palette
}

func distance(a, b color.RGBA) int {
	r, g, d := int(a.R)-int(b.R), int(a.G)-int(b.G), int(a.B)-int(b.B)
	return r*r + g*g + d*d
}

// picture takes pictures of the current page in both themes, unless -pictures is empty. By default, it takes the
// pictures of the documentation: the pages with typical data, and the heat map of the job with 1,200 replicas. If
// T9K_ALL_PICTURES is set, it takes all pages in three widths.
func (b *tab) picture(scene, page string, width int64) {
	b.Helper()
	if *pictures == "" {
		return
	}
	widths := []int64{width}
	if os.Getenv("T9K_ALL_PICTURES") != "" {
		widths = []int64{360, 1280, 2560}
	} else if scene == "enormous" && page == "job" {
		page = "heat"
	} else if scene != "typical" {
		return
	}
	for _, theme := range []string{"light", "dark"} {
		b.theme(theme)
		for _, width := range widths {
			b.size(width, 800)
			data, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
			if err != nil {
				b.Fatal(err)
			}
			file := fmt.Sprintf("console-%s-%s.png", page, theme)
			if len(widths) > 1 {
				file = fmt.Sprintf("%s-%s-%s-%d.png", scene, page, theme, width)
			}
			if err := write(filepath.Join(*pictures, file), data); err != nil {
				b.Fatal(err)
			}
		}
	}
}
