package shim

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLinesBecomeRecords(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	l, err := openLog(path)
	if err != nil {
		t.Fatal(err)
	}
	w := &lines{log: l, stream: "stdout"}
	long := strings.Repeat("y", maxLine)
	for _, chunk := range []string{"a\nb", "c\n\nd", long, "e\n", long, "\n", "end"} {
		w.add([]byte(chunk))
	}
	w.end()
	w.end()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(string(b)) {
		_, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " stdout ")
		got = append(got, strings.ReplaceAll(rest, "y", ""))
	}
	want := "F a|F bc|F |P d|F e|F |P end"
	if strings.Join(got, "|") != want {
		t.Errorf("records %q, want %q", got, want)
	}
	if n := bytes.Count(b, []byte("y")); n != 2*maxLine {
		t.Errorf("%d bytes of the long lines, want %d", n, 2*maxLine)
	}
}

func TestFullDiskLosesOnlyOutput(t *testing.T) {
	l, err := openLog("/dev/full")
	if err != nil {
		t.Skip("needs /dev/full")
	}
	w := &lines{log: l, stream: "stdout"}
	w.add([]byte("text\n"))
}

// TestDeletedEntriesAreLeftOut verifies that rebuildEntries leaves out entries that other programs have deleted since
// the directory was read, and does not fail.
func TestDeletedEntriesAreLeftOut(t *testing.T) {
	host := t.TempDir()
	for _, name := range []string{"gone", "stays"} {
		if err := os.Mkdir(filepath.Join(host, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("stays", filepath.Join(host, "link")); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(host)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"gone", "link"} {
		if err := os.Remove(filepath.Join(host, name)); err != nil {
			t.Fatal(err)
		}
	}
	r := &rootfs{spec: &Spec{Hide: []string{filepath.Join(host, "stays")}}, root: t.TempDir()}
	if err := os.MkdirAll(r.root+host, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := r.rebuildEntries(host, entries); err != nil {
		t.Fatal(err)
	}
	shown, err := os.ReadDir(r.root + host)
	if err != nil || len(shown) != 1 || shown[0].Name() != "stays" {
		t.Errorf("%v, %v are shown, want only what stays", shown, err)
	}
}

func TestResolveFollowsLinksToMissingFiles(t *testing.T) {
	dir, err := realPath(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{
		"absolute": dir + "/real", "relative": "real/./x/../y", "dangling": dir + "/not/there", "up": "../" + filepath.Base(dir) + "/real",
		"chain": "absolute/z", "loop": "loop",
	} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(dir+"/real", 0o755); err != nil {
		t.Fatal(err)
	}
	for in, want := range map[string]string{
		"/plain/a/b": "/plain/a/b", "/absolute/a": "/real/a", "/relative/b": "/real/y/b", "/dangling/c": "/not/there/c",
		"/up/d": "/real/d", "/chain/e": "/real/z/e", "/absolute/../f": "/f",
	} {
		if got, err := resolve(dir + in); err != nil || got != dir+want {
			t.Errorf("resolve(%s) = %s, %v; want %s", in, got, err, dir+want)
		}
	}
	if got, err := resolve(dir + "/loop/x"); err == nil {
		t.Errorf("a loop resolves to %s", got)
	}
	if got, err := resolve("/"); err != nil || got != "/" {
		t.Errorf("resolve(/) = %s, %v", got, err)
	}
}

func TestFramesAreReadAsTheyWereWritten(t *testing.T) {
	var b bytes.Buffer
	for _, payload := range []string{"", "text", strings.Repeat("x", maxFrame)} {
		if err := WriteFrame(&b, FrameStderr, []byte(payload)); err != nil {
			t.Fatal(err)
		}
		kind, got, err := ReadFrame(&b)
		if err != nil || kind != FrameStderr || string(got) != payload {
			t.Errorf("frame of %d bytes: kind %d, %d bytes, %v", len(payload), kind, len(got), err)
		}
	}
	if err := WriteFrame(&b, FrameStdin, make([]byte, maxFrame+1)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := ReadFrame(&b); err == nil {
		t.Error("a frame beyond the limit was accepted")
	}
}

func TestMountsThatContainersSee(t *testing.T) {
	const table = `1 0 254:0 / / rw,relatime - ext4 /dev/vda rw
2 1 0:21 / /proc rw - proc proc rw
3 1 0:41 / /var/lib rw shared:1 master:2 - tmpfs t9k-local rw
4 3 254:0 /var/lib/dpkg /var/lib/dpkg rw - ext4 /dev/vda rw
5 3 0:42 / /var/lib/kubelet rw - tmpfs t9k-local rw
6 1 0:43 / /home rw - xfs /dev/vdb rw
7 6 254:0 /home/own /home/own rw - ext4 /dev/vda rw
8 1 254:0 /srv/a\040b /mnt/c\040d ro - ext4 /dev/vda rw
9 1 0:44 net:[4026532389] /run/netns/x rw - nsfs nsfs rw
10 1 0:45 / /state/pods/1/tmp rw - tmpfs tmpfs rw
11 1 0:46 / /home rw - tmpfs again rw
`
	var got []string
	for _, m := range parseMounts(table, []string{"/proc", "/state"}) {
		p := m.path
		if m.readOnly {
			p += " (read-only)"
		}
		got = append(got, p)
	}
	if want := "/|/home|/home/own|/mnt/c d (read-only)"; strings.Join(got, "|") != want {
		t.Errorf("mounts %q, want %q", got, want)
	}
}
