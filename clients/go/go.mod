module ensemble

go 1.18
