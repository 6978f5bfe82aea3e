package cri

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"testing"
)

// TestMain also plays the programs that the tests run as separate processes: a server that can be killed, and a small
// network server and client. The first process of a container never gets here, because package shim runs it in an init
// function.
func TestMain(m *testing.M) {
	switch role := os.Getenv("T9K_TEST_ROLE"); role {
	case "":
		os.Exit(m.Run())
	case "server":
		os.Exit(playServer())
	case "echo":
		os.Exit(playEcho(os.Getenv("T9K_TEST_ADDRESS")))
	case "ask":
		os.Exit(playAsk(os.Getenv("T9K_TEST_ADDRESS")))
	default:
		fmt.Fprintln(os.Stderr, "unknown role", role)
		os.Exit(2)
	}
}

func fail(err error) int {
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// playServer serves until it is killed, and prints a line when it is ready.
func playServer() int {
	var cfg Config
	if err := json.Unmarshal([]byte(os.Getenv("T9K_TEST_CONFIG")), &cfg); err != nil {
		return fail(err)
	}
	if err := Serve(context.Background(), cfg); err != nil {
		return fail(err)
	}
	fmt.Println("ready")
	select {}
}

// playEcho answers every connection with the data that it received, and prints a line when it listens.
func playEcho(address string) int {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return fail(err)
	}
	fmt.Println("listening")
	for {
		c, err := l.Accept()
		if err != nil {
			return fail(err)
		}
		go func() {
			defer c.Close()
			_, _ = io.Copy(c, c)
		}()
	}
}

// playAsk sends a word to an echo server and prints the answer.
func playAsk(address string) int {
	answer, err := askFor(address)
	if err != nil {
		return fail(err)
	}
	fmt.Print(answer)
	return 0
}

func askFor(address string) (string, error) {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if _, err := io.WriteString(c, "word\n"); err != nil {
		return "", err
	}
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		return "", err
	}
	b, err := io.ReadAll(c)
	return string(b), err
}

func ask(t *testing.T, address string) string {
	t.Helper()
	answer, err := askFor(address)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// serverProcess starts a server in a separate process, and returns a client and the process.
func serverProcess(t *testing.T, cfg Config) (*node, *exec.Cmd) {
	t.Helper()
	b, err := json.Marshal(struct {
		Socket, Root, Mask, Bridge string
		Subnet                     any
	}{cfg.Socket, cfg.Root, cfg.Mask, cfg.Bridge, cfg.Subnet})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), "T9K_TEST_ROLE=server", "T9K_TEST_CONFIG="+string(b))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line := make([]byte, len("ready\n"))
	if _, err := io.ReadFull(out, line); err != nil || string(line) != "ready\n" {
		t.Fatalf("the server printed %q, %v", line, err)
	}
	return dial(t, cfg), cmd
}
