package arbiter

const sysChmod = -1 // there is fchmodat only
