package prober

import "syscall"

// Class says what part of the promise an effect belongs to.
type Class string

// The classes. What is in ClassWorks must work, what is in all others must not.
const (
	ClassWrite           Class = "write"            // content or names outside the writable roots change
	ClassTruncate        Class = "truncate"         // a file outside becomes shorter
	ClassMetadata        Class = "metadata"         // mode, owner, extended attributes, ACL, or flags of a file outside change
	ClassTimestamps      Class = "timestamps"       // times of a file outside change
	ClassHidden          Class = "hidden"           // content of a hidden path is read or written
	ClassHiddenNames     Class = "hidden-names"     // names below a hidden path are listed
	ClassHiddenSockets   Class = "hidden-sockets"   // sockets and metadata below a hidden path are reached
	ClassDevices         Class = "devices"          // a device is opened that commands do not get
	ClassDeviceIoctl     Class = "device-ioctl"     // an ioctl reaches the driver of a device
	ClassSignals         Class = "signals"          // a process outside is signalled
	ClassScheduling      Class = "scheduling"       // limits, priority, or scheduling of a process outside change
	ClassSecrets         Class = "secrets"          // memory, environment, descriptors, or namespaces of a process outside are reached
	ClassPrivilege       Class = "privilege"        // a call that a command has no business with, or a privilege that it holds
	ClassAbstractSockets Class = "abstract-sockets" // an abstract unix socket outside is reached
	ClassCommandLines    Class = "command-lines"    // the command line of a process outside is read, or which descriptors it has
	ClassProcessLimit    Class = "process-limit"    // the limit on the user's processes does not hold
	ClassInherited       Class = "inherited"        // a descriptor above 2 that the command was not given
	ClassWorks           Class = "works"            // what a command needs
)

// Effect is one operation that the prober tries.
type Effect struct {
	Name  string // unique; lower case, digits and dashes
	Class Class
	Text  string // one line for people, such as "chmod of a file outside"
}

// Result tells what became of an effect.
type Result struct {
	Effect  Effect
	Did     bool          // it happened; for ClassWorks: it works
	Errno   syscall.Errno // why it did not; 0 where Did, where it was skipped, and where only the object can tell
	Skipped string        // why it was not tried; empty where it was
}

// Effects that the prober does not try itself: what [Scene.Judge] finds changed although no effect that was tried accounts for it.
var (
	outsideChanged = Effect{"outside-changed", ClassWrite, "a change outside that no other effect accounts for"}
	victimChanged  = Effect{"victim-changed", ClassScheduling, "a change of another process that no other effect accounts for"}
	victimEnded    = Effect{"victim-ended", ClassSignals, "the end of another process"}
)

// Effects lists all effects in the order in which [Scene.Judge] returns them. The list differs between architectures,
// as their system calls do.
func Effects() []Effect {
	var list []Effect
	for _, p := range probes() {
		list = append(list, p.Effect)
	}
	return append(list, outsideChanged, victimChanged, victimEnded)
}
