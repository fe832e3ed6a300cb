package prober

import (
	"golang.org/x/sys/unix"
)

// deviceProbes open devices that a command does not get. None is read or written.
func deviceProbes() []probe {
	var list []probe
	for _, d := range []struct {
		name, path string
		flags      int
	}{
		{"kmsg", "/dev/kmsg", unix.O_RDONLY},
		{"mem", "/dev/mem", unix.O_RDONLY},
		{"port", "/dev/port", unix.O_RDONLY},
		{"ptmx", "/dev/ptmx", unix.O_RDWR},
		{"fuse", "/dev/fuse", unix.O_RDWR},
		{"kvm", "/dev/kvm", unix.O_RDWR},
		{"tun", "/dev/net/tun", unix.O_RDWR},
		{"loop-control", "/dev/loop-control", unix.O_RDWR},
		{"snapshot", "/dev/mapper/control", unix.O_RDONLY},
		{"input", "/dev/uinput", unix.O_RDONLY},
	} {
		list = append(list, probe{Effect: Effect{"dev-" + d.name, ClassDevices, "opening " + d.path}, try: func(*prober, place) outcome {
			return result(opens(d.path, d.flags))
		}})
	}
	return append(
		list,
		probe{Effect: Effect{"dev-disks", ClassDevices, "opening a disk for reading"}, try: func(p *prober, _ place) outcome {
			return p.anyDisk(unix.O_RDONLY)
		}},
		probe{Effect: Effect{"dev-disks-write", ClassDevices, "opening a disk for writing"}, try: func(p *prober, _ place) outcome {
			return p.anyDisk(unix.O_WRONLY)
		}},
		// /dev/null is no terminal, which its driver says by ENOTTY. A filter that says so, too, lets this question through.
		probe{Effect: Effect{"dev-ioctl", ClassDeviceIoctl, "an ioctl on a device"}, try: func(*prober, place) outcome {
			return reached(withFile("/dev/null", unix.O_RDWR, func(fd int) error {
				_, err := call(unix.SYS_IOCTL, uintptr(fd), unix.TCGETS)
				return err
			}), unix.ENOTTY)
		}},
	)
}

// anyDisk tries the host's disks until one opens.
func (p *prober) anyDisk(flags int) outcome {
	if len(p.disks) == 0 {
		return skip("this host has no disk in /dev")
	}
	var err error
	for _, d := range p.disks {
		// A medium that is not there is not the sandbox's merit, but its driver's word.
		o := reached(opens(d, flags), unix.ENOMEDIUM, unix.ENXIO, unix.EROFS, unix.EBUSY)
		if o.state == did {
			return o
		}
		err = o.errno
	}
	return result(err)
}
