package overlay

// CopyOptions say how [Copy] works. The zero value is usable.
type CopyOptions struct {
	// Owner maps the owner of each entry; nil keeps it. Only root can give files to others.
	Owner func(uid, gid uint32) (newUID, newGID uint32)
}
