package csi

// Running the system's own tools (mkfs.xfs, mount, losetup, …): bounded in time, and with their words in the error.

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
	commandPatience = 30 * time.Second
	// A process that waits for a frozen disk cannot be killed: after this long it is left behind.
	killPatience = 2 * time.Second
)

// run returns what the command printed. Its error has the command line and everything the command complained about.
func run(ctx context.Context, name string, arguments ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, commandPatience)
	defer cancel()
	line := strings.Join(append([]string{name}, arguments...), " ")
	command := exec.Command(name, arguments...)
	command.Env = append(os.Environ(), "LC_ALL=C")
	var printed, complaint bytes.Buffer
	command.Stdout, command.Stderr = &printed, &complaint
	if err := command.Start(); err != nil {
		return "", fmt.Errorf("%s: %w", line, err)
	}
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()

	select {
	case err := <-ended:
		if err != nil {
			return "", fmt.Errorf("%s: %w: %s", line, err, strings.TrimSpace(complaint.String()))
		}
		return printed.String(), nil
	case <-ctx.Done():
	}
	_ = command.Process.Kill()
	select {
	case <-ended:
		return "", fmt.Errorf("%s: killed (%w): %s", line, ctx.Err(), strings.TrimSpace(complaint.String()))
	case <-time.After(killPatience):
		// Its output is not read: the process is alive and may still write to it.
		return "", fmt.Errorf("%s: neither ends nor dies (%w): is the disk frozen?", line, ctx.Err())
	}
}
