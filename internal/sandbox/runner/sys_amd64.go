package runner

// sysSeccomp is not among the calls that package syscall knows.
const sysSeccomp = 317
