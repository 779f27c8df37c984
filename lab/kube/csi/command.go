package csi

// Runs system tools (mkfs.xfs, mount, losetup, …) with a time limit. Errors contain the command line and standard error.

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

const (
	commandTimeout = 30 * time.Second
	// A process that waits for a frozen disk cannot be killed. After this time, run returns without it.
	killTimeout = 2 * time.Second
)

// run executes a command and returns its standard output.
func run(ctx context.Context, name string, arguments ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	line := strings.Join(append([]string{name}, arguments...), " ")
	command := exec.Command(name, arguments...)
	command.Env = append(os.Environ(), "LC_ALL=C")
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Start(); err != nil {
		return "", fmt.Errorf("%s: %w", line, err)
	}
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()

	select {
	case err := <-ended:
		if err != nil {
			return "", fmt.Errorf("%s: %w: %s", line, err, strings.TrimSpace(stderr.String()))
		}
		return stdout.String(), nil
	case <-ctx.Done():
	}
	_ = command.Process.Kill()
	select {
	case <-ended:
		return "", fmt.Errorf("%s: killed (%w): %s", line, ctx.Err(), strings.TrimSpace(stderr.String()))
	case <-time.After(killTimeout):
		// The buffers are not read: the process is alive and may still write to them.
		return "", fmt.Errorf("%s: cannot be killed (%w): check whether the disk is frozen", line, ctx.Err())
	}
}
